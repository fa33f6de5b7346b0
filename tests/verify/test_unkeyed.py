"""What no key has, and what lies beside records: names and sizes of texts, lengths, copies, side files."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bench.records.record import parse_record
from bench.records.store import ResultStore
from bench.verify.stage_checks import plan_rerun, replace_stage_keys
from tests.support.cli import Cli
from tests.support.forge import forge
from tests.support.messages import missing_facts
from tests.support.verified import found_by_verify

Record = dict[str, Any]
Edit = Callable[[Record], object]
RESULTS = Path(__file__).parents[2] / "results"


@pytest.fixture
def take(tmp_path: Path) -> Callable[..., list[Path]]:
    """Copy committed records to campaign local: "campaign/profile/method", seeds."""

    def take(row: str, *seeds: int) -> list[Path]:
        campaign, profile, method = row.split("/")
        found = []
        for seed in seeds:
            to = tmp_path / "results" / "local" / profile / method / f"seed-{seed}"
            to.mkdir(parents=True)
            for suffix in ("json", "npz"):
                name = f"mini.{suffix}"
                shutil.copy(RESULTS / campaign / profile / method / f"seed-{seed}" / name, to / name)
            found.append(to / "mini.json")
        return found

    return take


def stages(record: Record) -> list[Record]:
    return list(record["training"]["stages"].values())


def paired(record: Record) -> None:
    for stage in stages(record):
        del stage["text"]["paired"]


def paraphrased(record: Record) -> None:
    for stage in stages(record):
        if "text" in stage:
            stage["text"].update(paired=True)


def of_a_recipe(record: Record) -> None:
    record["backbone"].update(recipe=record["backbone"]["sha256"], sha256="f" * 64)


SIMCSE, EDFSE, JTCSE = "mini/mini/simcse", "mini-equal/mini-equal/edfse", "mini-equal/mini-equal/jtcse"
CONTRADICTIONS: list[tuple[str, Edit, tuple[str, ...]]] = [
    (SIMCSE, lambda r: r["backbone"].update(name="bert-x"), ("name bert-x", "mini-bert")),
    (SIMCSE, of_a_recipe, ("recipe 576e90c1",)),
    (SIMCSE, lambda r: r["training"]["corpus"].update(sentences=1_000_000), ("sentences 1000000", "24000")),
    (SIMCSE, lambda r: r["training"]["dev"].update(task="X-dev"), ("task X-dev", "MINI-dev")),
    (EDFSE, paired, ("paired None",)),
    (JTCSE, paraphrased, ("paired True",)),
    (SIMCSE, lambda r: r.update(world=None), ("which world", "suite mini")),
    (SIMCSE, lambda r: r["training"].update(arithmetic=99), ("arithmetic 99", "has 2")),
    (SIMCSE, lambda r: r["provenance"].update(mteb="2.0"), ("mteb",)),
]


@pytest.mark.campaigns
@pytest.mark.parametrize(("row", "edit", "facts"), CONTRADICTIONS)
def test_what_contradicts_the_data_at_hand_or_takes_a_record_out_of_the_checks_is_found(
    cli: Cli, take: Callable[..., list[Path]], row: str, edit: Edit, facts: tuple[str, ...]
) -> None:
    (path,) = take(row, 1)
    assert found_by_verify(cli) == {}
    forge(path, edit)
    code, out, _ = cli("verify")
    assert (code, missing_facts(out, *facts)) == (1, []), out


def test_another_name_of_the_same_text_is_said_and_no_finding(
    cli: Cli, take: Callable[..., list[Path]]
) -> None:
    (path,) = take("mini/mini/simcse", 1)
    forge(path, lambda record: record["training"]["corpus"].update(name="wiki1m_for_simcse.txt"))
    code, out, _ = cli("verify")
    facts = "not checked: name", "wiki1m_for_simcse.txt", "mini-1.txt"
    assert (code, missing_facts(out, *facts)) == (0, []), out


def test_a_length_that_the_name_says_is_compared(cli: Cli, take: Callable[..., list[Path]]) -> None:
    take("mini/mini/simcse[match=tncse]", 1)
    assert "match=tncse" not in cli("verify")[1]
    (path,) = take("mini/mini/simcse", 2)
    renamed = path.parents[2] / "simcse[match=tncse]" / "seed-2"
    shutil.move(path.parent, renamed)
    forge(renamed / "mini.json", lambda record: record.update(method="simcse[match=tncse]"))
    facts = "not checked: name", "simcse[match=tncse]", "70 steps", "has 150"
    assert missing_facts(cli("verify")[1], *facts) == []


def as_seed(path: Path, seed: int, edit: Edit) -> Path:
    """A record's copy under another seed, with the keys of its stages and its seal made again."""
    to = path.parents[1] / f"seed-{seed}" / path.name
    shutil.copytree(path.parent, to.parent)

    def change(record: Record) -> None:
        record["seed"] = seed
        edit(record)

    forge(to, change)
    record = parse_record(to.read_text(), str(to))
    predictions = ResultStore(path.parents[4], path.parents[3].name).predictions(record)
    whole = replace_stage_keys(record, plan_rerun(record, None).keys)
    ResultStore(path.parents[4], path.parents[3].name).write(record.place, whole, predictions)
    return to


COPIED: dict[str, Edit] = {
    "as it is": lambda record: None,
    "another loss": lambda record: stages(record)[0]["loss_curve"][0].__setitem__(1, 9.0),
    "no steps": lambda record: stages(record)[0].pop("steps"),
}


@pytest.mark.parametrize("name", COPIED)
def test_predictions_of_another_seed_are_a_copy_whatever_the_training_is_said_to_be(
    cli: Cli, take: Callable[..., list[Path]], name: str
) -> None:
    (path,) = take("mini/mini/simcse", 1)
    if name == "no steps":
        forge(path, COPIED[name])
    as_seed(path, 4, COPIED[name] if name != "no steps" else lambda record: None)
    assert "copy" in {check for checks in found_by_verify(cli).values() for check in checks}
    assert cli("report", "--campaign", "local")[0] != 0


@pytest.mark.campaigns
def test_the_last_checkpoint_is_the_chosen_one_where_the_record_says_so(
    cli: Cli, take: Callable[..., list[Path]]
) -> None:
    paths = take("mini-equal/mini-equal/simcse", *range(1, 11))
    chosen = [stages(json.loads(path.read_text()))[0] for path in paths]
    path = next(p for p, s in zip(paths, chosen, strict=True) if s["selected_step"] == s["steps"])
    assert found_by_verify(cli) == {}

    def raised(record: Record) -> None:
        for score in record["scores"]:
            if score["metric"] == "spearman_last":
                score["value"] = 0.95

    forge(path, raised)
    code, out, _ = cli("verify")
    assert (code, missing_facts(out, "spearman_last is 0.95", "last step")) == (1, []), out


def test_a_sum_without_its_members_and_a_name_that_is_anothers_but_for_case(
    cli: Cli, take: Callable[..., list[Path]]
) -> None:
    (path,) = take("mini/mini/simcse", 1)
    options = {"options": {"methods": "sup_simcse+untrained"}, "version": 1, "training": {}}
    moved = path.parents[2] / "Tncse" / "seed-1"
    shutil.move(path.parent, moved)
    forge(moved / "mini.json", lambda r: r.update(name="ensemble", method="Tncse", **options))
    out = cli("verify")[1]
    assert missing_facts(out, "names none", "itself Tncse", "of tncse", "ensemble made it") == []
    code, _, err = cli("run", "--methods", "SimCSE=untrained", "--dry-run")
    assert (code, missing_facts(err, "alias 'SimCSE'")) == (2, [])
    assert cli("run", "--methods", "SimCSE=simcse", "--dry-run", "--campaign", "new")[0] == 0


def test_files_beside_the_records_are_said_to_be_unchecked(
    cli: Cli, take: Callable[..., list[Path]], tmp_path: Path
) -> None:
    take("mini/mini/simcse", 1)
    root = tmp_path / "results" / "local"
    (root / "overlap.csv").write_text("")
    (root / "gradient").mkdir()
    out = cli("verify")[1]
    for name in ("overlap.csv", "gradient/"):
        assert missing_facts(out, "not checked: files", f": {name}") == []
