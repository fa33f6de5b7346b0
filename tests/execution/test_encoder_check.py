"""An encoder against its reference across new weights: what runs, what decides, what is refused."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from bench.comparison.item_bootstrap import RefusedError
from bench.config import profiles
from bench.data.data_source import World
from bench.data.mini.world_text import graded_pairs
from bench.data.suites import _EMBEDDED
from bench.data.tasks import PairTask
from bench.errors import BenchError, DataError, InputError
from bench.eval.rescoring import _load_suite, load_record_tasks
from bench.eval.suite_measures import measure_of
from bench.execution.cell_run import _load_cell_suite
from bench.execution.runner import run_plan
from bench.gate import encoder_check
from bench.gate.encoder_check import judge_encoder, parse_encoder_request
from bench.gate.reference import update_reference
from bench.gate.verdict import CellVerdict, Gate, Question
from bench.plan.plan import Plan
from bench.records.record import RecordPlace, RunRecord
from bench.records.store import ResultStore
from tests.support.folders import sentence_transformers_folder
from tests.support.forge import forge
from tests.support.messages import missing_facts

Change = Callable[[Tensor], Tensor]
MINI = Path(profiles.backbone_reference(profiles.load_profile("mini")))
PLACE, TOY = (RecordPlace("mini", "mine", None, suite) for suite in ("mini", "toy"))
DRAWS = 200


def weights(target: Path, change: Change, source: Path = MINI) -> Path:
    shutil.copytree(source, target)
    file = target / "model.safetensors"
    torch.manual_seed(1)
    changed = {k: change(v) if v.ndim > 1 else v for k, v in load_file(file).items()}
    save_file({k: v.contiguous() for k, v in changed.items()}, file, {"format": "pt"})
    return target


def noised(share: float) -> Change:
    return lambda matrix: matrix + share * matrix.std() * torch.randn_like(matrix)


def permuted(matrix: Tensor) -> Tensor:
    return matrix[torch.randperm(len(matrix))]


@dataclass
class Check:
    store: ResultStore
    folder: Path
    runs: int = 0
    planned: list[Plan] = field(default_factory=list)

    def __call__(self, text: object, name: str = "mine", **options: Any) -> Gate:
        return self.whole(text, name, **options)[0]

    def whole(
        self, text: object, name: str = "mine", **options: Any
    ) -> tuple[Gate, ResultStore, list[RunRecord]]:
        self.runs += 1
        scratch = self.folder / f"scratch-{self.runs}"
        scratch.mkdir()
        base: dict[str, Any] = {"scratch": scratch, "draws": DRAWS, "execute": self.execute}
        return judge_encoder(self.store, str(text), name, **base | options)

    def execute(self, plan: Plan) -> None:
        self.planned.append(plan)
        run_plan(plan, on_outcome=lambda _: None)

    def accept(self, text: object, **options: Any) -> None:
        gate, source, new = self.whole(text, update=True, **options)
        update_reference(self.store, source, new, gate.cells)
        self.planned = []


@pytest.fixture(scope="module", autouse=True)
def fewer_pairs() -> Iterator[None]:
    """A third of suite mini's pairs: encoding them takes nearly all of the time."""
    (subset,) = graded_pairs(World(), "test").subsets
    cut = {name: getattr(subset, name)[:600] for name in ("first", "second", "gold")}
    fewer = PairTask("MINI", (replace(subset, **cut),))
    loaded = (_load_suite, _load_cell_suite)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(_EMBEDDED, "mini", lambda world: fewer)
        for kept in loaded:
            kept.cache_clear()
        yield
    for kept in loaded:
        kept.cache_clear()


@pytest.fixture(scope="module")
def accepted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A reference with the mini backbone, mean pooling, as "mine"; not to be written."""
    folder = tmp_path_factory.mktemp("reference")
    Check(ResultStore(folder / "results", "reference"), folder).accept(f"hf:{MINI}:avg")
    return folder / "results"


@pytest.fixture
def check(accepted: Path, tmp_path: Path) -> Check:
    shutil.copytree(accepted, tmp_path / "results")
    return Check(ResultStore(tmp_path / "results", "reference"), tmp_path)


@pytest.fixture
def tiny(tiny_bert: Path, tmp_path: Path) -> Check:
    """A reference with a tiny model on suite toy, mean pooling; quick, and its scores mean nothing."""
    made = Check(ResultStore(tmp_path / "results", "reference"), tmp_path)
    made.accept(f"hf:{tiny_bert}:avg", suites=("toy",))
    return made


@pytest.fixture
def empty(tmp_path: Path) -> Check:
    return Check(ResultStore(tmp_path / "results", "reference"), tmp_path)


def one(gate: Gate) -> CellVerdict:
    (cell,) = gate.cells
    assert cell.question is Question.ITEMS
    return cell


def bytes_of(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def test_the_same_weights_are_equal_and_the_reference_stays_as_it_is(check: Check) -> None:
    before = bytes_of(check.store.root)
    gate = check(f"hf:{MINI}:avg", strict=True)
    cell = one(gate)
    assert (cell.status, gate.exit_code, cell.key) == ("equal", 0, ("mini", "mine", "mini"))
    assert not missing_facts(cell.reasons, "reference's own")
    assert cell.average is not None
    assert cell.average.reference == cell.average.new > 0.4
    assert cell.sees is not None
    assert 0.01 < cell.sees < 0.2
    assert bytes_of(check.store.root) == before


def test_a_touch_of_noise_is_no_regression(check: Check, tmp_path: Path) -> None:
    before = bytes_of(check.store.root)
    slight = weights(tmp_path / "slight", noised(1e-3))
    cell = one(check(f"hf:{slight}:avg"))
    assert cell.status == "ok"
    assert (cell.test, list(cell.drops)) == ("items' bootstrap", ["MINI", "avg"])
    average = cell.average
    assert average is not None
    low, high = average.low or 0.0, average.high or 0.0
    assert low < average.drop < high
    assert 0 < high - low < 0.005
    assert cell.sees == pytest.approx(0.005, abs=0.001)
    assert bytes_of(check.store.root) == before  # no draws are kept in it


@pytest.mark.slow
def test_a_drop_that_the_items_do_not_show_is_unclear(empty: Check, tmp_path: Path) -> None:
    empty.accept(f"hf:{weights(tmp_path / 'slight', noised(1e-3))}:avg")
    gate = empty(f"hf:{MINI}:avg", tolerance=0.0)  # it falls by 0.01 points
    assert (one(gate).status, gate.exit_code) == ("unclear", 0)
    assert one(gate).average is not None
    assert one(gate).drops["avg"].drop > 0


def test_permuted_weights_regress_and_the_way_back_improves(check: Check, tmp_path: Path) -> None:
    broken = weights(tmp_path / "broken", permuted)
    gate, source, new = check.whole(f"hf:{broken}:avg", strict=True)
    cell = one(gate)
    assert (cell.status, gate.exit_code, cell.stage) == ("regression", 1, None)
    assert cell.average is not None
    assert cell.average.reference == check.store.read(PLACE).score("avg")  # type: ignore[union-attr]
    assert cell.average.new == new[0].score("avg")
    assert (cell.average.low or 0.0) > 0.2
    update_reference(check.store, source, new, gate.cells)
    gate = check(f"hf:{MINI}:avg", strict=True)
    assert (one(gate).status, gate.exit_code) == ("improved", 0)  # other weights are meant to give others


def test_several_suites_are_judged_together(empty: Check, tiny_bert: Path, tmp_path: Path) -> None:
    empty.accept(f"hf:{tiny_bert}:avg", suites=("mini", "mini-dev"))
    broken = weights(tmp_path / "broken", permuted, tiny_bert)
    gate = empty(f"hf:{broken}:avg")
    assert [cell.key[2] for cell in gate.cells] == ["mini", "mini-dev"]
    assert gate.tested == 2
    averages = [cell.drops["avg"] for cell in gate.cells]
    assert [drop.adjusted_p for drop in averages] == [min(1.0, 2 * (drop.p or 0.0)) for drop in averages]
    assert [len(plan.jobs) for plan in empty.planned] == [2]  # one encoder, both suites
    gate = empty(f"hf:{broken}:avg", suites=("mini-dev",))
    assert ([cell.key[2] for cell in gate.cells], gate.tested) == (["mini-dev"], 1)
    assert one(gate).drops["avg"].drop == averages[1].drop


def test_a_suite_of_one_cluster_is_judged_by_the_tolerance(
    tiny: Check, tiny_bert: Path, tmp_path: Path
) -> None:
    gate = tiny(f"hf:{weights(tmp_path / 'broken', permuted, tiny_bert)}:avg")
    cell = one(gate)
    assert (gate.tested, cell.test, cell.sees) == (0, None, 0.005)
    assert not missing_facts(cell.reasons, "tolerance", "180 items of TOY", "1.0 clusters")


def test_without_items(check: Check, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_: object, **__: object) -> None:
        raise BenchError("no predictions are kept")

    monkeypatch.setattr(encoder_check, "draw_items", none)
    cell = one(check(f"hf:{weights(tmp_path / 'broken', permuted)}:avg"))
    assert (cell.status, cell.test, cell.sees) == ("regression", None, 0.005)
    assert not missing_facts(cell.reasons, "tolerance", "no predictions are kept")


def test_the_same_weights_with_other_numbers_have_changed(tiny: Check, tiny_bert: Path) -> None:
    record, text = tiny.store.read(TOY), f"hf:{tiny_bert}:avg"
    assert record is not None
    predictions = tiny.store.predictions(record)
    predictions["TOY"][::2] += np.float32(0.001)
    scores = measure_of("toy").rescore(list(load_record_tasks(record, None).values()), predictions, record)
    tiny.store.write(TOY, replace(record, scores=scores), predictions)
    cell = one(tiny(text, strict=True, tolerance=1.0))
    assert (cell.status, cell.stage) == ("changed", "similarities")
    assert not missing_facts(cell.reasons, "numbers changed", "equal versions")
    assert one(tiny(text, tolerance=1.0)).status == "ok"
    forge(tiny.store.path(TOY), lambda r: r["timing"].update(processor="another"))
    assert one(tiny(text, strict=True, tolerance=1.0)).status == "changed"  # by more than CPUs differ
    forge(tiny.store.path(TOY), lambda r: r["provenance"]["versions"].update(torch="1.0"))
    assert one(tiny(text, strict=True, tolerance=1.0)).status == "changed"  # nor do versions excuse it


class Planned(Exception):  # noqa: N818
    pass


def test_it_runs_as_the_record_was_run(tiny: Check, tiny_bert: Path, tmp_path: Path) -> None:
    path = tiny.store.path(TOY)
    forge(path, lambda r: r["provenance"].update(threads=2))
    forge(path, lambda r: r["evaluation"].update(precision="bf16"))
    plans: list[Plan] = []

    def stop(plan: Plan) -> None:
        plans.append(plan)
        raise Planned

    with pytest.raises(Planned):
        tiny(f"hf:{tiny_bert}:avg", execute=stop, workers=3)
    (spec,) = (plan.spec for plan in plans)
    assert (spec.threads, spec.precision, spec.suites, spec.workers) == (2, "bf16", ("toy",), 3)
    assert spec.results.is_relative_to(tmp_path / f"scratch-{tiny.runs}")


def test_another_pooling_is_refused_before_anything_runs(tiny: Check, tiny_bert: Path) -> None:
    gate, _, new = tiny.whole(f"hf:{tiny_bert}:cls")
    assert not missing_facts(one(gate).reasons, "option pooling", "then avg", "now cls")
    assert (one(gate).status, gate.exit_code, new, tiny.planned) == ("different", 3, [], [])
    gate, _, new = tiny.whole(f"hf:{tiny_bert}:cls", update=True)
    assert (one(gate).status, len(new), new[0].options["pooling"]) == ("different", 1, "cls")
    assert one(tiny(tiny_bert)).status == "equal"  # a bare folder is read as the reference's was


def test_other_data_are_refused(check: Check) -> None:
    forge(check.store.path(PLACE), lambda r: r["tasks"]["MINI"].update(sha256="0" * 64))
    gate = check(f"hf:{MINI}:avg")
    assert gate.exit_code == 3
    assert one(gate).reasons[0].startswith("data MINI then 000000000000")


def test_a_bare_folder_of_sentence_transformers(empty: Check, tmp_path: Path, tiny_bert: Path) -> None:
    folder = sentence_transformers_folder(tiny_bert, tmp_path / "st", mean=True)
    empty.accept(folder, suites=("mini",))
    record = empty.store.read(PLACE)
    assert record is not None
    assert (record.name, record.method) == ("st", "mine")
    assert one(empty(weights(tmp_path / "broken", permuted, folder))).test == "items' bootstrap"


def test_a_file_of_word_vectors(empty: Check, tmp_path: Path) -> None:
    words = ["the", "a", "is", "on", "hill", "doctor", "book", "children", "song", "reading", "two"]
    random = np.random.default_rng(1)
    for name in ("one.txt", "two.txt"):
        rows = [f"{word} {' '.join(f'{x:.3f}' for x in random.normal(size=5))}" for word in words]
        (tmp_path / name).write_text("\n".join(rows) + "\n")
    empty.accept(tmp_path / "one.txt", suites=("mini",))
    assert one(empty(f"vectors:{tmp_path / 'one.txt'}")).status == "equal"
    assert one(empty(tmp_path / "two.txt")).test == "items' bootstrap"


def test_an_encoder_of_nan_fails(tiny: Check, tiny_bert: Path, tmp_path: Path) -> None:
    broken = weights(tmp_path / "nan", lambda matrix: matrix * torch.nan, tiny_bert)
    empty = Check(ResultStore(tmp_path / "none", "reference"), tmp_path / "none")
    empty.folder.mkdir()
    first: dict[str, Any] = {"update": True, "suites": ("toy",)}
    for check, options in ((tiny, {}), (empty, first)):
        gate, source, new = check.whole(f"hf:{broken}:avg", **options)
        assert (one(gate).status, gate.exit_code) == ("failed", 1)
        assert "not finite" in one(gate).reasons[0]
        with pytest.raises(BenchError, match="reference stays"):
            update_reference(check.store, source, new, gate.cells)
    collapsed = weights(tmp_path / "equal", lambda matrix: matrix * 0, tiny_bert)
    assert one(tiny(f"hf:{collapsed}:avg")).status == "failed"


def test_a_reference_that_lacks_the_name_says_how_to_make_it(check: Check, empty: Check) -> None:
    with pytest.raises(InputError, match="mina") as raised:
        check(MINI, "mina")
    command = f"bench check --encoder {MINI} --name mina --suite mini --update --why TEXT"
    assert not missing_facts(raised.value, "--name mina:", "'mina' on mini", "'mine'", command)
    with pytest.raises(InputError, match=r"'mine' on mini-dev; .*--suite mini-dev --update"):
        check(MINI, suites=("mini", "mini-dev"))
    with pytest.raises(InputError, match=r"--profile minilm --suite sts7"):
        check(MINI, profile="minilm", suites=("sts7",))
    assert check.planned == []


def test_there_may_be_no_reference_at_all(empty: Check, tiny_bert: Path) -> None:
    with pytest.raises(InputError, match="'mine' on mini; bench check"):
        empty(tiny_bert)
    gate, source, new = empty.whole(tiny_bert, update=True, suites=("toy",))
    score = new[0].score("avg")
    assert score is not None
    assert (one(gate).status, gate.exit_code) == ("new", 0)
    assert not missing_facts(one(gate).reasons, "no record", f"{100 * score:.2f}")
    update_reference(empty.store, source, new, gate.cells)
    assert one(empty(tiny_bert)).status == "equal"


@pytest.mark.slow
def test_a_suite_more(tiny: Check, tiny_bert: Path) -> None:
    text = f"hf:{tiny_bert}:avg"
    forge(tiny.store.path(TOY), lambda r: r["evaluation"].update(precision="bf16"))
    gate, source, new = tiny.whole(text, suites=("mini", "toy"), update=True)
    facts = {"mini": "no record", "toy": "reference's own"}
    assert {cell.key[2]: missing_facts(cell.reasons, facts[cell.key[2]]) for cell in gate.cells} == {
        "mini": [], "toy": []
    }  # fmt: skip
    assert {record.evaluation["precision"] for record in new} == {"bf16"}  # as the others of its name
    update_reference(tiny.store, source, new, gate.cells)
    assert [cell.status.value for cell in tiny(text).cells] == ["equal", "equal"]


HOSTILE = ["../mine", "a/b", "", ".", "mine\x1b[31m", "mi\nne", "mine\ud800", "a,b", "-x", "a b"]


@pytest.mark.parametrize("name", [*HOSTILE, "untrained"])
def test_hostile_names_and_registered_ones(check: Check, name: str) -> None:
    with pytest.raises(InputError, match=r"is not a name|'untrained'") as raised:
        check(MINI, name)
    assert raised.value.where == "--name"
    assert str(raised.value).isprintable()
    assert check.planned == []


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        ("/nowhere/at/all", ("--encoder: '/nowhere/at/all'", "model folder")),
        ("a\x00b", ("--encoder: 'a\\x00b'",)),
        ("hf:a,hf:b", ("--encoder: 'hf:a,hf:b'",)),
        (f"other=hf:{MINI}", (f"--encoder: 'other=hf:{MINI}'", "--name NAME")),
        ("simcse", ("--encoder simcse: 'simcse'", "trained")),
        ("hf:/nowhere", ("--encoder hf:/nowhere: '/nowhere'", "folder")),
        ("hf", ("--encoder hf: 'hf'", "expected hf:PATH")),
    ],
)
def test_what_is_no_encoder(check: Check, text: str, facts: tuple[str, ...]) -> None:
    with pytest.raises(InputError) as raised:
        check(text)
    assert not missing_facts(raised.value, *facts)
    assert check.planned == []


def test_folders_are_told_apart(tmp_path: Path) -> None:
    folder = tmp_path / "a,b[1]=st"
    folder.mkdir()
    for file, kind in ((".", "hf"), ("modules.json", "st"), ("bench.json", "st")):
        (folder / file).touch()
        request = parse_encoder_request(str(folder), "mine")
        assert (request.name, request.argument, request.alias) == (kind, str(folder), "mine")
    for file in ("bench.json", "twin.json"):
        (tmp_path / file).mkdir()
        (tmp_path / file / file).touch()
        assert encoder_check._parse_encoder(str(tmp_path / file)).name == "exported"


def test_a_name_that_has_seeds_is_no_encoders(check: Check, tmp_path: Path) -> None:
    record = check.store.read(PLACE)
    assert record is not None
    seeded = replace(record, seed=1, method="short")
    check.store.write(seeded.place, seeded, check.store.predictions(record))
    with pytest.raises(InputError, match=r"--name short: .* seeds"):
        check(MINI, "short")
    assert check.store.path(PLACE).exists()


def test_edited_predictions(check: Check) -> None:
    file = check.store.path(PLACE).with_suffix(".npz")
    whole = file.read_bytes()
    file.write_bytes(whole[:-1] + b"x")
    for _ in ("changed", "missing"):
        with pytest.raises(DataError, match="predictions are missing"):
            check(f"hf:{MINI}:avg")
        file.unlink(missing_ok=True)


def test_edited_scores(check: Check, tmp_path: Path) -> None:
    path = check.store.path(PLACE)

    def lower(record: dict[str, Any]) -> None:
        for score in record["scores"]:
            score["value"] -= 0.4

    forge(path, lower)  # so that broken weights would pass
    with pytest.raises(RefusedError, match="the record was edited") as raised:
        check(f"hf:{weights(tmp_path / 'broken', permuted)}:avg")
    assert str(path) in str(raised.value)
    forge(path, lower, "kept")
    with pytest.raises(DataError, match="was changed since"):
        check(f"hf:{MINI}:avg")
