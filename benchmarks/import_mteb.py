"""CPU time and memory of reading a folder of mteb's results, and a check of its scores against mteb's own.

The folder is made up, as large as the public repository's part for MTEB(eng, v2): 265 models, 41 tasks each.
With ``--folder`` it is a real one. It is read once, and once with ten copies of every model, each time in a
process of its own. Then mteb reads ``--check`` models, and every score and mean must be equal.

    python benchmarks/import_mteb.py [--folder results] [--models 265] [--copies 10] [--check 30] [--json]
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

from claim import add_json, show, within

from bench.errors import InputError
from bench.eval.mteb_setup import import_mteb, silence_mteb
from bench.imports.mteb_choice import ANY, JOINED, MtebChoice, WantedTask, load_wanted_tasks
from bench.imports.mteb_files import EXTERNAL
from bench.imports.mteb_folder import read_mteb_folder
from bench.imports.published import PublishedResults

BENCHMARK = "MTEB(eng, v2)"
SECONDS, SECONDS_OF_COPIES, MEGABYTES = 10.0, 60.0, 1000.0
METRICS = 40  # of an entry; a file of the public repository has 11 kB
DIGITS = 1e-9
_REVISION = "0123456789abcdef0123456789abcdef01234567"


def make_tree(folder: Path, models: int, wanted: list[WantedTask]) -> None:
    """Write a result of every model on every task."""
    draw = random.Random(1)  # noqa: S311
    for number in range(models):
        place = folder / "results" / f"org__model-{number:04d}" / _REVISION
        place.mkdir(parents=True)
        meta = {"name": f"org/model-{number:04d}", "revision": _REVISION, "n_parameters": 10**6}
        (place / "model_meta.json").write_text(json.dumps(meta))
        for each in wanted:
            content = json.dumps(make_result(each, draw), indent=2)
            (place / f"{each.task.asked.name}.json").write_text(content)


def make_result(wanted: WantedTask, draw: random.Random) -> dict[str, Any]:
    """Return a result as mteb writes it, with scores that are made up."""
    task, scores = wanted.task, {}
    for split in task.splits:
        scores[split] = [
            {
                **{f"metric_{i}": round(draw.random(), 6) for i in range(METRICS)},
                wanted.main: (value := round(draw.random(), 6)),
                "main_score": value,
                "hf_subset": subset,
                "languages": ["eng-Latn"],
            }
            for subset in wanted.subsets
        ]
    return {
        "dataset_revision": task.dataset[1],
        "task_name": task.asked.name,
        "mteb_version": "2.12.16",
        "scores": scores,
        "evaluation_time": 1.0,
        "kg_co2_emissions": None,
        "date": 1776177366.0,
    }


def copy_models(folder: Path, target: Path, copies: int) -> None:
    """Make further models with the same files, as links where the disk has them."""
    for model in sorted((folder / "results").iterdir()):
        for number in range(copies):
            place = target / "results" / f"{model.name}-{number}"
            shutil.copytree(model, place, copy_function=_link)
            for meta in place.glob("*/model_meta.json"):
                meta.unlink()  # it states the name of the first


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


def read_measured(folder: Path) -> dict[str, float]:
    """Read a folder in a process of its own; its CPU seconds, peak of memory in MB and number of rows."""
    command = [sys.executable, "-c", _CODE, str(folder), BENCHMARK]
    done = subprocess.run(command, check=True, capture_output=True, text=True)  # noqa: S603
    facts: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return facts


_CODE = """
import json, resource, sys
from pathlib import Path
from bench.imports.mteb_choice import MtebChoice
from bench.imports.mteb_folder import read_mteb_folder

files = []
read = read_mteb_folder(Path(sys.argv[1]), MtebChoice(sys.argv[2]), files.append)
used = resource.getrusage(resource.RUSAGE_SELF)
facts = {"rows": len(read.runs), "left_out": len(read.left_out), "files": files[-1]}
facts |= {"seconds": used.ru_utime + used.ru_stime, "megabytes": used.ru_maxrss / 1024}
print(json.dumps(facts))
"""


def compare_with_mteb(folder: Path, models: int) -> dict[str, int]:
    """Compare scores and means with mteb's own for the first models; raises SystemExit for a difference.

    mteb joins revisions and takes what model cards say where it measured nothing, so the reader does too.
    """
    mteb, benchmark = import_mteb(), import_mteb().get_benchmark(BENCHMARK)
    choice = MtebChoice(BENCHMARK, revisions=JOINED, data_revisions=ANY, external=True)
    read = read_mteb_folder(folder, choice)
    ours = {run.method.removesuffix(f"@{EXTERNAL}"): run for run in read.runs}
    step = max(1, len(ours) // max(1, models))
    names = list(ours)[::step][:models]
    with silence_mteb(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cache = mteb.ResultCache(folder)
        loaded = cache.load_results(models=names, tasks=benchmark, require_model_meta=False)
        joined = loaded.select_tasks(benchmark.tasks).join_revisions()
        theirs: dict[tuple[str, str], float] = {}
        for model in joined:
            for task in model.task_results:
                theirs[model.model_name, task.task_name] = float(task.get_score())
        table = joined.to_dataframe().set_index("task_name")
    return check_scores(read, names, theirs, table)


def check_scores(
    read: PublishedResults, names: list[str], theirs: dict[tuple[str, str], float], table: Any
) -> dict[str, int]:
    """Check every score of the named models, in both of mteb's forms, and their means."""
    compared, runs = 0, {run.method.removesuffix(f"@{EXTERNAL}"): run for run in read.runs}
    for name in names:
        metric = next(score.metric for score in runs[name].scores if score.task == "avg")
        values = {score.task: score.value for score in runs[name].scores if score.metric == metric}
        own = [theirs[name, str(block["name"])] for block in runs[name].tasks.values()]
        for task, block in runs[name].tasks.items():
            expected = theirs[name, str(block["name"])]
            both = (values[task] - expected, values[task] - float(table.loc[block["name"], name]))
            if max(map(abs, both)) > DIGITS:
                raise SystemExit(f"{name} {task}: {values[task]} and not {expected}, mteb's")
            compared += 1
        if abs(values["avg"] - sum(own) / len(own)) > DIGITS:
            raise SystemExit(f"{name}: mean {values['avg']} and not mteb's")
    return {"models_compared": len(names), "scores_compared": compared}


def main() -> None:
    """Measure and print one JSON line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--folder", type=Path, help="A folder with results/; default: a made-up one.")
    parser.add_argument("--models", type=int, default=265)
    parser.add_argument("--copies", type=int, default=10)
    parser.add_argument("--check", type=int, default=30, metavar="MODELS")
    add_json(parser)
    given = parser.parse_args()
    try:
        wanted = load_wanted_tasks(MtebChoice(BENCHMARK))
    except InputError as error:
        raise SystemExit(str(error)) from error
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.folder or Path(temporary) / "one"
        if given.folder is None:
            make_tree(folder, given.models, wanted)
        copies = Path(temporary) / "copies"
        copy_models(folder, copies, given.copies)
        once, often = read_measured(folder), read_measured(copies)
        facts: dict[str, Any] = {"once": once, "copies": often, **compare_with_mteb(folder, given.check)}
    facts["check_megabytes"] = round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
    what = f"{once['files']:,} files of mteb's results, {once['rows']} rows"
    show(given.json, within("import_mteb", what, ours=once["seconds"], unit="CPU s", goal=SECONDS))
    what = f"{often['files']:,} files, {given.copies} copies of each model"
    goal = SECONDS_OF_COPIES
    show(given.json, within("import_mteb copies", what, ours=often["seconds"], unit="CPU s", goal=goal))
    claim = within("import_mteb memory", "its peak", ours=often["megabytes"], unit="MB", goal=MEGABYTES)
    show(given.json, claim)
    print(json.dumps(facts))


if __name__ == "__main__":
    main()
