"""``engine.SE``: evaluates a batcher on SentEval's tasks by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from bench.data.probing_files import FILES
from bench.data.probing_files import find_probing_folder as find_probing
from bench.data.senteval import find_root
from bench.errors import InputError, not_one_of
from bench.eval.transfer_items import SEED
from bench.senteval_compat import binary, mrpc, probing, rank, sick, snli, sst, sts, supervised, trec
from bench.senteval_compat.fitting_settings import read_fitting
from bench.senteval_compat.task_base import (
    Batcher,
    Evaluation,
    Prepare,
    fill_defaults,
    read_parameter,
    read_whole_number,
)

_CLASSIFIED: dict[str, tuple[str, Callable[..., Evaluation]]] = {
    "CR": ("CR", binary.CREval),
    "MR": ("MR", binary.MREval),
    "MPQA": ("MPQA", binary.MPQAEval),
    "SUBJ": ("SUBJ", binary.SUBJEval),
    "SST2": ("SST/binary", partial(sst.SSTEval, nclasses=2)),
    "SST5": ("SST/fine", partial(sst.SSTEval, nclasses=5)),
    "TREC": ("TREC", trec.TRECEval),
    "MRPC": ("MRPC", mrpc.MRPCEval),
    "SICKEntailment": ("SICK", sick.SICKEntailmentEval),
    "SNLI": ("SNLI", snli.SNLIEval),
}
_SIMCSE = (
    sts.SICKRelatednessEval, sts.STSBenchmarkEval, sts.STS12Eval, sts.STS13Eval, sts.STS14Eval, sts.STS15Eval,
    sts.STS16Eval, sick.SICKEval, sts.STSBenchmarkFinetune, sts.STSBenchmarkFix,
)  # fmt: skip
_ORIGINAL = (
    supervised.SICKRelatednessEval, supervised.STSBenchmarkEval, supervised.STS12Eval, supervised.STS13Eval,
    supervised.STS14Eval, supervised.STS15Eval, supervised.STS16Eval,
)  # fmt: skip
_TASKS = {
    fork: _CLASSIFIED | {task.name: (task.folder, task) for task in pairs}
    for fork, pairs in (("simcse", _SIMCSE), ("facebookresearch", _ORIGINAL))
}
"""For each form of SentEval, each task's folder below ``downstream`` and its class."""
_OURS = dict.fromkeys(("STSB", "STS-B"), "STSBenchmark") | dict.fromkeys(
    ("SICKR", "SICK-R"), "SICKRelatedness"
)
"""SentEval's names of tasks with another name in bench."""


class SE:
    """SentEval's engine; parameters that SentEval lacks raise InputError.

    Args:
        params: ``task_path`` (SentEval's ``data`` folder) and optionally ``kfold`` (5), ``batch_size`` (128),
            ``seed`` (1111), ``usepytorch`` (True; False fits with scikit-learn), ``classifier`` ({"nhid": 0,
            "optim", "batch_size", "tenacity", "epoch_size", "max_epoch", "dropout"}), ``noreg`` and
            ``cudaEfficient`` (without effect, as in SentEval), ``similarity`` (of two vectors, in place of
            the cosine), ``transfer_solver`` ("exact" or "sgd": SentEval's own procedure, which hidden
            layers, scikit-learn and SNLI always take), ``fork`` ("simcse" or "facebookresearch").
        batcher: (params, sentences as lists of words) -> (sentences, dim).
        prepare: (params, all sentences of the task), called before the batcher.
    """

    fork = "simcse"

    def __init__(self, params: dict[str, Any], batcher: Batcher, prepare: Prepare | None = None) -> None:
        self.params = fill_defaults(params)
        if self.params.seed is None:
            self.params.seed = SEED
        self.params.classifier = self.params.classifier or {"nhid": 0}
        self.fork = str(self.params.fork or self.fork)
        if self.fork not in _TASKS:
            raise InputError(f"fork '{self.fork}'", where="params", expected=f"one of {', '.join(_TASKS)}")
        self.params.seed = read_whole_number(self.params.seed, "params['seed']", 0, "params")
        read_parameter(self.params, "batch_size", 1)
        read_fitting(self.params, self.params.seed)  # refuses bad settings before anything runs
        self.batcher = batcher
        self.prepare: Prepare = prepare if prepare is not None else lambda *_: None
        self.list_tasks = [*_TASKS[self.fork], *FILES]
        self.results: dict[str, Any] = {}

    def eval(self, name: str | Sequence[str]) -> dict[str, Any]:
        """Evaluate one task, or several into {task: its dictionary}.

        STS12 to STS16 have {subset: {"pearson", "spearman", "nsamples"}} and "all" with {"pearson",
        "spearman"} of {"all", "mean", "wmean"} ("all" is SimCSE's). So have SimCSE's STSBenchmark,
        STSBenchmark-fix and SICKRelatedness, with the splits as subsets. The original's STSBenchmark and
        SICKRelatedness are regressions: "devpearson", "pearson", "spearman", "mse", "yhat", "ndev", "ntest";
        SimCSE's STSBenchmark-finetune and SICKRelatedness-finetune are too, selected by "devspearman". The
        others have "devacc" and "acc" in percent, rounded as SentEval rounds, "ndev", "ntest", and MRPC "f1".
        An unknown task and missing data raise InputError.
        """
        if not isinstance(name, str):
            self.results = {task: self.eval(task) for task in name}
            return self.results
        if name not in self.list_tasks:
            if name == "ImageCaptionRetrieval":
                rank.ImageCaptionRetrievalEval()
            raise not_one_of(f"unknown task '{name}'", _OURS.get(name.upper(), name), self.list_tasks)
        if not self.params.task_path:
            raise InputError("params has no 'task_path'", where=name, expected="SentEval's data folder")
        self.params.current_task = name
        task_path, seed = Path(str(self.params.task_path)), int(self.params.seed)
        evaluation: Evaluation
        if name in FILES:
            evaluation = probing.PROBINGEval(name, find_probing(task_path), seed)
        else:
            folder, task_class = _TASKS[self.fork][name]
            evaluation = task_class(find_root(task_path) / folder, seed=seed)
        evaluation.do_prepare(self.params, self.prepare)
        self.results = evaluation.run(self.params, self.batcher)
        return self.results
