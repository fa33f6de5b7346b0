"""Where the CPU seconds of ``bench run`` go, part by part, for one cell on one thread.

Each case runs one cell in this process in a folder of its own, with a clock at the seams of the program; a
part that runs inside another is taken out of it. CPU time, so a busy machine blurs it but doesn't inflate it.

- mini-simcse: profile mini, SimCSE, 150 steps;
- mini-tncse: profile mini, TNCSE, 30 + 30 + 10 steps (the demo's);
- minilm-simcse: all-MiniLM-L6-v2 on real text, ``--steps`` of SimCSE, one dev evaluation, suite stsb-dev;
- bert-base: a BERT-base of random weights, ``--steps`` of SimCSE on mini's text, toy dev set and suite.

    python benchmarks/where.py mini-tncse minilm-simcse [--data data] [--steps 4]
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

CASES = ("mini-simcse", "mini-tncse", "minilm-simcse", "bert-base")
PARTS = {
    "import": "torch, transformers, bench",
    "plan": "profile, data, training text, cells",
    "hash": "sha256 of model folders and finished stages",
    "load": "reading models and tokenizers",
    "tokenise": "text to token ids, training and evaluation",
    "forward": "the loss of a batch",
    "backward": "its gradient",
    "clip": "norm of the gradient",
    "optimizer": "AdamW",
    "dev": "dev evaluations during training, tokenising aside",
    "copy": "weights of a checkpoint, in memory",
    "save": "checkpoints to disk",
    "evaluate": "encoding and scoring the suite, tokenising aside",
    "probes": "one traced pass",
    "write": "record and predictions",
    "rest": "everything else",
}


class Clock:
    """CPU seconds by part; time inside an inner part doesn't count for the outer one."""

    def __init__(self) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self.calls: Counter[str] = Counter()
        self._open, self._since = ["rest"], time.process_time()

    def _note(self) -> None:
        now = time.process_time()
        self.seconds[self._open[-1]] += now - self._since
        self._since = now

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Count a block as a part."""
        self._note()
        self._open.append(name)
        self.calls[name] += 1
        try:
            yield
        finally:
            self._note()
            self._open.pop()

    def watch(self, owner: Any, attribute: str, name: str) -> None:
        """Count every call of a function or method as a part."""
        function: Callable[..., Any] = getattr(owner, attribute)

        @functools.wraps(function)
        def timed(*arguments: Any, **named: Any) -> Any:
            with self.part(name):
                return function(*arguments, **named)

        setattr(owner, attribute, timed)


def watch_all(clock: Clock) -> None:
    """Put the clock at the program's seams."""
    import torch
    from torch import nn
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    import bench.execution.cell_run
    import bench.execution.encoder_builder
    import bench.execution.stage_cache
    import bench.nn.backbone
    import bench.nn.model_folder
    import bench.probes.measurement
    import bench.records.store
    import bench.training.loop
    import bench.training.sentence_encoder

    clock.watch(bench.nn.model_folder, "hash_model", "hash")
    clock.watch(bench.execution.encoder_builder, "hash_model", "hash")
    clock.watch(bench.execution.stage_cache, "_hash_files", "hash")
    clock.watch(bench.nn.backbone, "_load_whole_model", "load")
    clock.watch(PreTrainedTokenizerBase, "__call__", "tokenise")
    clock.watch(bench.training.sentence_encoder, "train", "forward")  # what is left of it
    clock.watch(torch.Tensor, "backward", "backward")
    clock.watch(nn.utils, "clip_grad_norm_", "clip")
    clock.watch(torch.optim.AdamW, "step", "optimizer")
    clock.watch(bench.training.sentence_encoder.DevEvaluation, "score", "dev")
    clock.watch(bench.training.loop, "copy_state", "copy")
    clock.watch(PreTrainedModel, "save_pretrained", "save")
    clock.watch(PreTrainedTokenizerBase, "save_pretrained", "save")
    clock.watch(bench.execution.cell_run, "measure_job", "evaluate")
    clock.watch(bench.probes.measurement, "measure_probes", "probes")
    clock.watch(bench.records.store.ResultStore, "write", "write")


def bert_base(folder: Path) -> Path:
    """Write a BERT-base of random weights with mini's tokenizer."""
    import torch
    from transformers import AutoTokenizer, BertConfig, BertModel

    from bench.config import profiles

    mini = profiles.backbone_reference(profiles.load_profile("mini"))
    torch.manual_seed(1)
    BertModel(BertConfig()).save_pretrained(folder)
    AutoTokenizer.from_pretrained(mini, local_files_only=True).save_pretrained(folder)
    return folder


def options_of(case: str, steps: int, folder: Path) -> dict[str, Any]:
    """What the case's ``bench run`` is given."""
    short = {"simcse.steps": steps, "simcse.eval_every": steps}
    if case == "minilm-simcse":
        return {"methods": "simcse", "profile": "minilm", "suites": "stsb-dev", "set": short}
    if case == "bert-base":
        given = {"backbone": str(bert_base(folder / "bert-base")), "suites": "toy", "dev": "toy"}
        return {"methods": "simcse", "set": short, **given}
    return {"methods": case.removeprefix("mini-")}


def arguments_of(options: Mapping[str, Any], results: Path, data: Path | None, probes: bool) -> list[str]:
    """The command line, without the command."""
    names = {"methods": "--methods", "profile": "--profile", "suites": "--suite", "dev": "--dev"}
    names["backbone"] = "--backbone"
    found = [part for name, flag in names.items() if name in options for part in (flag, options[name])]
    found += [part for name, value in options.get("set", {}).items() for part in ("--set", f"{name}={value}")]
    found += ["--seeds", "1", "--workers", "1", "--results", str(results)]
    return found + (["--data", str(data)] if data else []) + (["--probes", "all"] if probes else [])


def run_case(case: str, steps: int, data: Path | None, probes: bool) -> dict[str, Any]:
    """Run a case; return its CPU seconds by part."""
    clock = Clock()
    with clock.part("import"):
        import torch
        import transformers.models.bert.modeling_bert  # noqa: F401

        import bench.execution.cell_run
        import bench.plan.plan
        import bench.training.sentence_encoder
        from bench.cli.run import run_command
    watch_all(clock)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        options = options_of(case, steps, folder)
        clock.watch(bench.plan.plan, "make_plan", "plan")
        clock.seconds["rest"] = 0.0
        clock._since = time.process_time()
        arguments = arguments_of(options, folder / "results", data, probes)
        run_command.main(arguments, standalone_mode=False)
        clock._note()
    total = sum(clock.seconds.values())
    return {
        "benchmark": f"where {case}",
        "cpu_seconds": round(total, 2),
        "parts": {name: round(clock.seconds[name], 3) for name in PARTS if clock.seconds[name]},
        "calls": {name: clock.calls[name] for name in PARTS if clock.calls[name]},
    }


def shown(found: Mapping[str, Any]) -> str:
    """The parts as text."""
    lines = [f"{found['benchmark']}: {found['cpu_seconds']:.1f} CPU seconds"]
    for name, seconds in sorted(found["parts"].items(), key=lambda item: -item[1]):
        share, calls = 100 * seconds / found["cpu_seconds"], found["calls"].get(name, "")
        lines.append(f"  {name:10} {seconds:8.2f} {share:5.1f}% {calls:>6}  {PARTS[name]}")
    return "\n".join(lines)


def main() -> None:
    """Run the cases, each in a process of its own where there are several."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("cases", nargs="+", choices=CASES)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--probes", action="store_true")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    for case in given.cases:
        if len(given.cases) > 1:
            import subprocess
            import sys

            more = [part for part in sys.argv[1:] if part not in given.cases]
            subprocess.run([sys.executable, __file__, case, *more], check=True)  # noqa: S603
            continue
        found = run_case(case, given.steps, given.data, given.probes)
        print(json.dumps(found) if given.json else shown(found), flush=True)


if __name__ == "__main__":
    main()
