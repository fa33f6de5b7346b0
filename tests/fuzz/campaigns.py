"""Records, predictions and the files next to them, damaged, under every command that reads them."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
import zipfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from bench.config.sweep_manifest import Manifest, save_manifest
from bench.errors import BenchError
from bench.records.integrity import seal_record
from bench.records.record import RecordPlace, RunRecord, parse_record, record_to_json
from bench.records.store import ResultStore
from tests.fuzz import core
from tests.fuzz.core import ANSWER, Dice, Outcome, RuleError
from tests.fuzz.mutate import bytes_of, difference, json_bytes, json_of
from tests.support.campaigns import make_record, probes_of
from tests.support.forge import forge

_FORMATS = ("text", "markdown", "csv", "json", "latex", "html")
_TABLES = (
    *("leaderboard", "sts7", "transfer", "efficiency", "ablation:caels", "probes", "mechanism"),
    *("significance", "overlap", "published", "gains", "order", "checkpoints"),
)
_SUITES = {"camp": "toy", "made": "sts7", "transfer": "transfer7"}
_OVERLAP = "task,level,sentences,touched,pairs,clean_pairs\nSTS12,exact,10,1,40,38\nSTSB,near,9,0,30,30\n"
Scores = list[tuple[str, str, str, float, int]]


def _fill(results: Path) -> None:
    """A campaign as bench run leaves it, one with training, probes and a sweep, one of transfer tasks."""
    for campaign, names in (("camp", "noise,word_overlap,broken"), ("again", "noise,word_overlap")):
        methods = ("--methods", names, "--seeds", "1-3", "--suite", "toy")
        core.bench("run", *methods, "--results", str(results), "--campaign", campaign)
    rng = np.random.default_rng(1)
    for campaign, rows in (("made", ("simcse", "jtcse", "mhe", "m_mhe")), ("transfer", ("simcse", "noise"))):
        store = ResultStore(results, campaign)
        suite, metric = _SUITES[campaign], "accuracy" if campaign == "transfer" else "spearman"
        tasks = {"MR": 30, "SST2": 20} if campaign == "transfer" else {"STS12": 40, "STSB": 30}
        for number, method in enumerate(rows):
            for seed in range(1, 4):
                scores = {task: 0.5 + 0.03 * number + 0.01 * float(rng.normal()) for task in tasks}
                record = make_record(
                    method, seed, scores, suite=suite, metric=metric, probes=probes_of(number)
                )
                arrays = {task: rng.uniform(-1, 1, n).astype(np.float32) for task, n in tasks.items()}
                record.tasks.update({t: {**facts, "pairs": tasks[t]} for t, facts in record.tasks.items()})
                store.write(record.place, _fuller(record), arrays)
    points = (("0", "jtcse", "jtcse"), ("1", "jtcse", "simcse"))
    save_manifest(Manifest("caels", "mini", ("sts7",), (1, 2, 3), points), results / "made")
    (results / "made" / "overlap.csv").write_text(_OVERLAP)
    (results / "made" / "probes.json").write_text(json.dumps([_probed()]))


def _fuller(record: RunRecord) -> RunRecord:
    """The record with all that one may say of its training, its versions and its clock."""
    text = {"name": "copy.txt", "sha256": "e" * 64, "paired": False}
    stage = {"key": "k" * 64, "steps": 20, "selected_step": 10, "selected_dev": 0.6, "text": text}
    joint = {**record.training["stages"]["simcse"], **stage, "mean_cls_norm": [14.5, 15.5]}
    member = {"method": "simcse[steps=5]", "version": 1, "options": {"lr": 3e-05, "text": "train"}}
    probes = {"wall_seconds": 1.0, "sentences_per_second": 80.0, "peak_memory_mb": 500.0}
    training = {
        "stages": {**record.training["stages"], "joint": joint},
        "dev": {"task": "STSB-dev", "sha256": "d" * 64},
        "members": {"one": member, "two": {**member, "members": {"one": member}}},
        "auxiliaries": {"generator": {"name": "tiny", "sha256": "a" * 64}},
    }
    timing = {"wall_seconds": 2.5, "cpu_seconds": 2.0, "processor": "a processor", "cores": 2}
    timing |= {"training_cpu_seconds": {"simcse": 12.5, "joint": 3.5}, "probes": probes}
    provenance = {"threads": 1, "precision": "float32", "platform": "Linux", "python": "3.11.7"}
    provenance |= {"versions": {"torch": "2.13.0", "numpy": "2.4.6"}}
    provenance |= {"transfer": {"solver": "exact", "tasks": {"MR": {"fits": 60, "regs": [1.0]}}}}
    return replace(
        record, training={**record.training, **training}, timing={**record.timing, **timing},
        provenance={**record.provenance, **provenance}, world={"generator": 1, "split": 1, "seed": 1},
        options={"lr": 3e-05, "batch_size": 64, "text": "train", "sick": False}, notes=("A note.",),
    )  # fmt: skip


def _probed() -> dict[str, Any]:
    curve = [0.01] * 101
    density = {"groups": [{"low": 0.0, "high": 1.0}, {"low": 1.0, "high": 2.0}], "curves": [curve, None]}
    maps = [{"tokens": ["[CLS]", "a", "[SEP]"], "layers": [[[0.2, 0.3, 0.5]] * 3]}]
    place = {"method": "simcse", "seed": 1, "profile": "mini", "suite": "sts7"}
    return {**place, "average": 0.5, "probes": {"density": density, "attention_sink": {"maps": maps}}}


class Campaigns:
    """Damaged results: what is printed is what the damaged file says, or the file is refused."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.results = folder / "results"
        _fill(self.results)
        self.files = {name: sorted((self.results / name).rglob("*/*/*/*.json")) for name in _SUITES}
        self.good = [json.loads(p.read_bytes()) for files in self.files.values() for p in files]
        self.kept = {p: p.read_bytes() for p in self.results.rglob("*") if p.is_file()}

    def run(self, dice: Dice, steps: Sequence[Dice], log: list[str]) -> str:
        os.chdir(self.folder)
        campaign = dice.choice(tuple(_SUITES))
        path = dice.choice(self.files[campaign])
        kind = dice.random()
        damaged: dict[str, Any] | None = None
        try:
            if kind < 0.7:
                path, damaged = self._record(path, dice, steps, log)
            elif kind < 0.85:
                self._predictions(path, dice, steps, log)
            else:
                campaign = "made"
                self._beside(dice, steps, log)
            arguments = self._command(campaign, path, dice)
            log.append(f"bench {' '.join(map(ascii, arguments))}")
            outcome = core.bench(*arguments)
            if outcome.kind == ANSWER and damaged is not None:
                self._compare(arguments, outcome, campaign, damaged)
            return outcome.kind
        finally:
            self._restore()

    def _restore(self) -> None:
        for path in [p for p in self.results.rglob("*") if p.is_file()]:
            if path not in self.kept and ".locks" not in path.parts:
                path.unlink()
        for path, raw in self.kept.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            if not path.is_file() or path.read_bytes() != raw:
                path.write_bytes(raw)

    def _record(
        self, path: Path, dice: Dice, steps: Sequence[Dice], log: list[str]
    ) -> tuple[Path, dict[str, Any] | None]:
        """Damage a record; where it still says where it belongs, half of the cases put it there."""
        data = json.loads(path.read_bytes())
        if stripped := dice.chance(0.05):
            del data["timing"]["record_sha256"]
        raw = None
        for step in steps:
            if step.chance(0.12):
                raw = bytes_of(raw or json.dumps(data).encode(), step)
            elif raw is None:
                data = json_of(data, step)
        raw = json_bytes(data, dice) if raw is None else raw
        if not stripped and dice.chance(0.9):  # else any change is seen
            raw = _sealed(raw)
        new = path
        if isinstance(data, dict) and dice.chance(0.5) and _has_place(data):
            new = self._place(path, data)
        if new != path:
            new.parent.mkdir(parents=True, exist_ok=True)
            for old in (path, path.with_suffix(".npz")):
                if old.exists():
                    old.rename(new.with_suffix(old.suffix))
        new.write_bytes(raw)
        log.append(f"{new.relative_to(self.results)}: {difference(self.kept[path], raw)}")
        return new, _parsed(raw)

    def _place(self, path: Path, data: dict[str, Any]) -> Path:
        store = ResultStore(self.results, path.relative_to(self.results).parts[0])
        try:
            return store.path(RecordPlace(data["profile"], data["method"], data["seed"], data["suite"]))
        except UnicodeEncodeError:
            return path

    def _predictions(self, path: Path, dice: Dice, steps: Sequence[Dice], log: list[str]) -> None:
        file = path.with_suffix(".npz")
        if not file.exists():
            return
        with np.load(file) as archive:
            arrays = {name: archive[name] for name in archive.files}
        raw = file.read_bytes()
        for step in steps:
            raw = bytes_of(raw, step) if step.chance(0.2) else _other_npz(arrays, step, log)
        file.write_bytes(raw)
        if dice.chance(0.85):  # a whole file, as far as its hash says
            sha256 = hashlib.sha256(raw).hexdigest()
            forge(path, lambda record: record["predictions"].update(sha256=sha256))
        log.append(f"{file.relative_to(self.results)}: {len(raw)} bytes")

    def _beside(self, dice: Dice, steps: Sequence[Dice], log: list[str]) -> None:
        root = self.results / "made"
        file = dice.choice((root / "overlap.csv", root / "probes.json", root / "sweeps" / "mini-caels.json"))
        raw = file.read_bytes()
        data = json.loads(raw) if file.suffix == ".json" else None
        for step in steps:
            if data is None or step.chance(0.2):
                raw, data = bytes_of(raw, step), None
            else:
                data = json_of(data, step)
                raw = json.dumps(data).encode()
        file.write_bytes(raw)
        log.append(f"{file.relative_to(self.results)}: {difference(self.kept[file], raw)}")

    def _command(self, campaign: str, path: Path, dice: Dice) -> list[str]:
        where = ["--campaign", campaign]
        names = ("noise", "word_overlap") if campaign == "camp" else ("simcse", "jtcse", "mhe")
        if dice.chance(0.55):
            table = ["--table", dice.choice(_TABLES)] if dice.chance(0.35) else []
            more = [token for token in ("--senteval-rounding", "--checkpoint=last") if dice.chance(0.1)]
            return ["report", "--format", dice.choice(_FORMATS), *table, *more, *where]
        both = [dice.choice(names), dice.choice(("word_overlap", names[-1], names[0] + "#2"))]
        check = ["check", "--results", "results", "--reference"]
        commands = [
            ["compare", *both, *where, "--draws", "100", "--format", dice.choice(("text", "json"))],
            ["compare", *both, *where, "--seeds-only", "--format", "json"],
            ["stats", *where, "--draws", "100", "--format", dice.choice(("text", "json"))],
            ["compare", "--show-items", *both, *where],
            ["probe", *where, "--format", dice.choice(("text", "json"))],
            [*check, "results/again", *where, "--json", "verdict.json"],
            [*check, f"results/{campaign}", "--campaign", "again"],
        ]
        if campaign == "camp":
            run = ("run", "--dry-run", "--methods", "noise,word_overlap", "--seeds", "1-3")
            overlap = ("data", "overlap", str(self.folder / "made.txt"))
            toy = ["--suite", "toy", *where]
            commands += [[*run, *toy], ["verify", str(path), "--rerun"], [*overlap, *toy]]
        return dice.choice(commands)

    def _compare(
        self, arguments: Sequence[str], outcome: Outcome, campaign: str, damaged: dict[str, Any]
    ) -> None:
        """Hold what is printed of the damaged record against what its file says."""
        command, plain = arguments[0], not {"--table", "--senteval-rounding"} & set(arguments)
        if command not in ("report", "verify", "check"):
            return
        if _unsealed(damaged):
            raise RuleError(f"{command} believes a record without its own seal")
        if command == "check" and campaign == "camp" and self._is_contradicted(damaged):
            raise RuleError("check believes scores that the predictions contradict")
        if command == "report" and plain and "csv" in arguments:
            check_csv(outcome.out, damaged)
        elif command == "report" and plain and damaged["status"] == "ok":
            metric = "accuracy" if campaign == "transfer" else "spearman"
            self._check_means(outcome.out, arguments[2], damaged, metric)
        elif command == "verify" and outcome.out.startswith("equal"):
            seed = "no-seed" if damaged["seed"] is None else f"seed-{damaged['seed']}"
            path = self.results / "camp" / "mini" / str(damaged["name"]) / seed / "toy.json"
            before = _scores(json.loads(self.kept[path]))
            if [row[:4] for row in before] != [row[:4] for row in _scores(damaged)]:
                raise RuleError("a changed score is called equal")
        elif command == "check" and "--json" in arguments:
            self._check_verdict(damaged)

    def _is_contradicted(self, damaged: dict[str, Any]) -> bool:
        """True for a record on data that are at hand, with predictions of which the scores are known."""
        for good in self.good:
            if all(good[key] == damaged[key] for key in ("suite", "tasks", "predictions", "status")):
                return not set(_scores(good)) <= set(_scores(damaged))
        return False

    def _records(self, damaged: dict[str, Any], campaign: str) -> list[dict[str, Any]]:
        """Finished records of the damaged one's row."""
        found = [json.loads(p.read_bytes()) for p in (self.results / campaign).glob("*/*/*/*.json")]
        row = [damaged[key] for key in ("profile", "method", "suite")]
        same = (r for r in found if [r[key] for key in ("profile", "method", "suite")] == row)
        return [record for record in same if record["status"] == "ok"]

    def _check_means(self, out: str, form: str, damaged: dict[str, Any], metric: str) -> None:
        others = "made" if metric == "spearman" else "transfer"
        runs = self._records(damaged, "camp" if damaged["suite"] == "toy" else others)
        tasks = dict.fromkeys(s[0] for run in runs for s in _scores(run) if s[1:3] == ("all", metric))
        means = {task: fmean(_values(runs, task, metric)) for task in tasks}
        if form == "json":
            rows = [row for table in json.loads(out) for row in table["rows"] if isinstance(row, dict)]
            (row,) = (row for row in rows if row["method"] == damaged["method"])
            for task, cell in row["cells"].items():
                if task in means and abs(cell["mean"] - means[task]) > 1e-12 * max(1, abs(means[task])):
                    raise RuleError(f"{task} is {cell['mean']}, not {means[task]}")
        elif "avg" in means and f"{100 * means['avg']:.2f}" not in out.replace("$-$", "-"):
            raise RuleError(f"the average {100 * means['avg']:.2f} isn't printed")

    def _check_verdict(self, damaged: dict[str, Any]) -> None:
        file = self.folder / "verdict.json"
        cells = json.loads(file.read_text())["cells"]
        file.unlink()
        for cell in cells:
            if cell["method"] == damaged["method"] and "avg" in cell["drops"]:
                runs = self._records(damaged, "camp")
                mean, said = fmean(_values(runs, "avg", "spearman")), cell["drops"]["avg"]["new"]
                if [run["seed"] for run in runs] == cell["new_seeds"] and abs(said - mean) > 1e-12:
                    raise RuleError(f"the verdict has {said}, not {mean}")


def _has_place(data: dict[str, Any]) -> bool:
    seed = data.get("seed", "")
    texts = [data.get(key) for key in ("profile", "method", "suite")]
    return all(isinstance(text, str) for text in texts) and (
        seed is None or (type(seed) is int and abs(seed) < 10**50)
    )


def _parsed(raw: bytes) -> dict[str, Any] | None:
    try:
        data = json.loads(raw)
    except (ValueError, RecursionError):
        return None
    return data if isinstance(data, dict) else None


def _sealed(raw: bytes) -> bytes:
    """A record's text with the averages, the key and the seal of what it says, as far as it is a record."""
    try:
        record = parse_record(raw.decode(), "x")
    except (BenchError, ValueError):
        return raw
    scores = list(record.scores)
    for place, score in enumerate(scores):
        same = [s.value for s in scores if (s.subset, s.metric) == ("all", score.metric) and s.task != "avg"]
        if (score.task, score.subset) == ("avg", "all") and same:
            scores[place] = replace(score, value=fmean(same))
    try:
        return record_to_json(seal_record(replace(record, scores=tuple(scores)))).encode()
    except (BenchError, ValueError):
        return raw


def _unsealed(data: dict[str, Any]) -> bool:
    """True if a record isn't what was sealed."""
    record = parse_record(json.dumps(data), "x")
    return bool(seal_record(record).timing["record_sha256"] != record.timing.get("record_sha256"))


def _scores(data: dict[str, Any]) -> Scores:
    return [(s["task"], s["subset"], s["metric"], s["value"], s["n"]) for s in data["scores"]]


def _values(runs: Sequence[dict[str, Any]], task: str, metric: str) -> list[float]:
    """A score of each of several records."""
    return [s[3] for run in runs for s in _scores(run) if s[:3] == (task, "all", metric)]


def check_csv(out: str, damaged: dict[str, Any]) -> None:
    """Hold the rows of a record in the csv against its file; raises RuleError."""
    scores = _scores(damaged)
    seed = "" if damaged["seed"] is None else str(damaged["seed"])
    rows = [
        row
        for row in csv.DictReader(io.StringIO(out, newline=""))
        if row["method"] in (damaged["method"], f"'{damaged['method']}") and row["seed"] == seed
    ]
    if damaged["status"] == "failed":
        if any(row["value"] for row in rows) or not rows:
            raise RuleError("a failed cell has a value or no row")
        return
    found = [(row["task"], row["subset"], row["metric"], float(row["value"]), int(row["n"])) for row in rows]
    if found != [(t, s, m, float(v), n) for t, s, m, v, n in scores]:
        raise RuleError(f"csv has {found}, the record {scores}")


def _other_npz(arrays: dict[str, Any], dice: Dice, log: list[str]) -> bytes:
    """An archive of other arrays than a record's."""
    name = dice.choice(sorted(arrays))
    values = arrays[name]
    kinds: dict[str, Any] = {
        "objects": np.array([{"a": 1}, None], dtype=object), "two axes": values.reshape(1, -1),
        "one less": values[:-1], "none": values[:0], "a number": values[0], "equal": np.ones_like(values),
        "whole numbers": (values * 9).astype(np.int64), "huge": values * np.float32(1e30),
        **{kind.__name__: values.astype(kind) for kind in (np.float64, np.complex64, str)},
    }  # fmt: skip
    for end in (np.nan, np.inf):
        kinds[str(end)] = np.where(np.arange(len(values)) == 2, end, values).astype(np.float32)
    kind = dice.choice((*kinds, "missing", "extra", "no zip", "a text in it"))
    log.append(f"{name}: {kind}")
    stream = io.BytesIO()
    if kind == "no zip":
        np.save(stream, values)
    elif kind == "a text in it":
        with zipfile.ZipFile(stream, "w") as archive:
            archive.writestr(f"{name}.npy", b"no array")
    else:
        made = {**arrays, **({name: kinds[kind]} if kind in kinds else {"OTHER": values})}
        if kind == "missing":
            del made[name]
        np.savez(stream, allow_pickle=True, **made)
    return stream.getvalue()
