from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from bench.cli.main import main
from bench.comparison.comparison import Comparison, compare
from bench.comparison.confounders import describe_confounders
from bench.comparison.design import Design
from bench.comparison.item_bootstrap import CampaignRun
from bench.comparison.selection import Group, format_seeds
from bench.comparison.wording import (
    describe_verdict,
    format_p_value,
    format_percent,
)
from bench.data.suites import load_suite
from bench.errors import NotComparableError
from bench.eval.sts import score_suite
from bench.records.integrity import seal_record
from bench.records.record import NOT_RECOMPUTED, RunRecord, Score, parse_record, record_to_json
from bench.records.store import ResultStore
from bench.stats.argument_checks import make_generator
from bench.stats.correlations import steiger, williams
from bench.stats.coverage import find_coverage
from bench.stats.seed_pairs import paired_t
from bench.stats.seeds import exact_permutation, sign_flip, welch
from tests.support.cli import Cli, records, refusal
from tests.support.messages import missing_facts, numbers_in
from tests.support.sides import level_of, sentence

NOISY = "noise[scale=2.0]"
Change = Callable[[RunRecord], RunRecord]
Take = Callable[..., None]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A campaign with ten seeds of two methods that are one, a deterministic one and one that failed."""
    results = tmp_path_factory.mktemp("finished")
    methods = "noise,noise[scale=2],collapsed,word_overlap"
    with pytest.raises(SystemExit):
        main(
            ["run", "--methods", methods, "--seeds", "1-10", "--suite", "mini-dev", "--results", str(results)]
        )
    return results / "local"


@pytest.fixture
def take(finished: Path, tmp_path: Path) -> Take:
    """Copy some seeds of some methods, and those without seeds, into the test's own campaign."""

    def copy(seeds: int, *methods: str) -> None:
        for method in methods or ("noise", NOISY):
            for source in (finished / "mini" / method).iterdir():
                if source.name == "no-seed" or int(source.name.removeprefix("seed-")) <= seeds:
                    shutil.copytree(source, tmp_path / "results/local/mini" / method / source.name)

    return copy


def make_lone(folder: Path, seeds: int = 1) -> None:
    """Seeds of a method "lone" in the test's campaign."""
    root = folder / "results/local/mini"
    for seed in range(1, seeds + 1):
        shutil.copytree(root / f"noise/seed-{seed}", root / f"lone/seed-{seed}")
    rewrite(root, "lone/*", lambda record: replace(record, method="lone", options={"scale": 7.0}))


def group(folder: Path, method: str, change: Change = lambda record: record) -> Group:
    store = ResultStore(folder / "results", "local")
    found = [change(record) for record in records(folder).values() if record.method == method]
    return Group(method, tuple(CampaignRun(store, record) for record in found))


def shifted(by: float) -> Change:
    def change(record: RunRecord) -> RunRecord:
        scores = tuple(Score(s.task, s.subset, s.metric, s.value + by, s.n) for s in record.scores)
        return replace(record, scores=scores)

    return change


def as_json(cli: Cli, *arguments: str) -> list[dict[str, Any]]:
    code, out, err = cli("compare", *arguments, "--format", "json", "--draws", "100")
    assert (code, err) == (0, "")
    found: list[dict[str, Any]] = json.loads(out)
    return found


def rewrite(folder: Path, pattern: str, change: Change) -> None:
    for path in folder.glob(f"{pattern}/*.json"):
        path.write_text(record_to_json(seal_record(change(parse_record(path.read_text(), str(path))))))


def measure_anew(store: ResultStore, method: str, seed: int) -> None:
    """Give a record other predictions, and the scores that they give."""
    (record,) = (r for r in store.records() if (r.method, r.seed) == (method, seed))
    predictions = {"MINI-dev": make_generator(9, "other").normal(size=900).astype(np.float32)}
    scores = score_suite([load_suite("mini-dev")[1][0]], predictions)
    store.write(record.place, replace(record, scores=scores), predictions)


def other_version(record: RunRecord) -> RunRecord:
    """As measured on data that aren't those at hand."""
    return replace(record, tasks={"MINI-dev": {**record.tasks["MINI-dev"], "sha256": "0" * 64}})


def test_it_says_what_the_seeds_show_and_what_not(cli: Cli, take: Take, tmp_path: Path) -> None:
    take(4)
    code, out, err = cli("compare", "noise", NOISY, "--seeds-only")
    assert (code, err) == (0, "")
    assert not missing_facts(out, "4 seeds each", "no difference shown", NOISY, "+0.00", "95%")
    assert NOT_RECOMPUTED not in out
    assert NOT_RECOMPUTED not in cli("compare", "noise", NOISY, "--draws", "100")[1]
    a, b = group(tmp_path, "noise", shifted(0.1)), group(tmp_path, NOISY)
    found = compare(a, b)
    d = level_of(found).tasks["avg"]
    assert level_of(found).design == Design("welch", "auto", None)
    expected = stats.ttest_ind(a.scores("avg"), b.scores("avg"), equal_var=False)
    assert (d.p, found.headline.p) == pytest.approx((expected.pvalue, expected.pvalue))
    assert (d.low, found.headline.low) == pytest.approx((expected.confidence_interval().low,) * 2)
    assert found.seeds == ((1, 2, 3, 4), (1, 2, 3, 4))
    ends, p = [round(100 * d.low, 2), round(100 * d.high, 2)], round(d.p, 4)
    said, turned = describe_verdict(found), describe_verdict(compare(b, a))
    assert numbers_in(said)[1:8] == [10, 95, *ends, p, 4]  # after the scale in the name
    assert not missing_facts(said, "New seeds", "noise is ahead", f"noise - {NOISY} =", "Welch's")
    assert (numbers_in(turned)[1], "noise is ahead" in turned) == (-10, True)


@pytest.mark.parametrize(
    ("arguments", "facts"),
    [
        ("noise nois", ("unknown method 'nois'", "did you mean 'noise'", "collapsed, lone, noise")),
        ("noise results/local/mini/noise", ("'noise'", "'results/local/mini/noise'", "in common")),
        ("noise collapsed", ("no suite", "noise and collapsed")),
        ("results/local/mini/noise two/local", ("no method", "mini/noise has noise", "two/local has lone")),
        ("noise word_overlap --suite sts7", ("no suite",)),
        ("noise word_overlap --profile minilm", ("no suite",)),
        ("lone noise", ("lone has one", "two seeds")),
        ("noise#9 lone", ("finished seed 9", "one of 1, 2")),
        ("word_overlap#1 lone", ("finished seed 1",)),
        ("noise results/none", ("'results/none'",)),
        ("noise lost.json", ("'lost.json'",)),
        ("noise results", ("several campaigns", "local, other", "one of them")),
        ("noise ./empty", ("no records", "results/CAMPAIGN")),
        ("noise ./stray.json", ("no records", "results/CAMPAIGN")),
        ("noise", ("B and --against",)),
        ("noise lone --against word_overlap", ("B and --against",)),
        ("noise --against lone,", ("an empty name",)),
        ("noise --against lone,lone", ("'lone,lone'", "twice")),
        ("noise#1 lone#1 --seeds-only", ("noise#1 against lone#1", "one run")),
    ],
)
def test_bad_comparisons(
    cli: Cli, take: Take, tmp_path: Path, arguments: str, facts: tuple[str, ...]
) -> None:
    take(2, "noise", "collapsed", "word_overlap")
    make_lone(tmp_path)
    shutil.copytree(tmp_path / "results" / "local", tmp_path / "results" / "other")
    shutil.copytree(tmp_path / "results" / "local", tmp_path / "two" / "local")
    shutil.rmtree(tmp_path / "two" / "local" / "mini" / "noise")
    (tmp_path / "empty").mkdir()
    (tmp_path / "stray.json").write_text("{}")
    assert not missing_facts(refusal(cli, "compare", *arguments.split()), *facts)


def test_other_data_and_other_specifications_are_not_compared(cli: Cli, take: Take, tmp_path: Path) -> None:
    take(2)
    changed = "results/local/mini/noise/seed-1"
    rewrite(tmp_path, changed, lambda record: replace(record, options={"scale": 3.0}))
    code, _, err = cli("compare", "noise", NOISY)
    assert (code, missing_facts(err, "seeds of noise", "different specifications")) == (3, [])
    with pytest.raises(NotComparableError, match="versions of the data"):
        compare(group(tmp_path, "noise"), group(tmp_path, NOISY, other_version))


def test_a_deterministic_method_is_a_fixed_score(take: Take, tmp_path: Path) -> None:
    take(4, "noise", "word_overlap")
    a, b = group(tmp_path, "noise"), group(tmp_path, "word_overlap")
    one, other = compare(a, b), compare(b, a)
    scores, (fixed,) = a.scores("avg"), b.scores("avg")
    expected = stats.ttest_1samp(scores, fixed)
    d, reverse = level_of(one).tasks["avg"], level_of(other).tasks["avg"]
    assert (d.n_a, d.n_b, reverse.n_a, reverse.n_b) == (4, 1, 1, 4)
    assert d.p == pytest.approx(expected.pvalue)
    assert d.low == pytest.approx(expected.confidence_interval().low - fixed)
    assert (reverse.difference, reverse.low, reverse.high) == (-d.difference, -d.high, -d.low)
    assert d.t == -(reverse.t or 0)
    assert (one.headline.test, level_of(one).design.asked) == ("student", "auto")
    flips = level_of(one).exact["avg"]
    assert flips == sign_flip(scores, [fixed] * 4, same_order=True)
    assert level_of(other).exact["avg"].p == flips.p
    assert not missing_facts(describe_verdict(other), "word_overlap is ahead", "- noise = +")
    said = describe_verdict(one)
    assert numbers_in(said)[-2:] == [4, 0.125]
    assert not missing_facts(said, "word_overlap is ahead", "noise - word_overlap = -", "Student's test")


def test_items_are_drawn_in_pairs_and_each_correlation_anew(cli: Cli, take: Take, tmp_path: Path) -> None:
    take(2, "noise", "word_overlap")
    (found,) = as_json(cli, "noise#2", "word_overlap")
    store = ResultStore(tmp_path / "results", "local")
    chosen_records = [record for record in records(tmp_path).values() if record.seed in (2, None)]
    rows = [store.predictions(record)["MINI-dev"] for record in chosen_records]
    gold = np.array(load_suite("mini-dev")[1][0].subsets[0].gold)
    chosen = make_generator(1, "items/MINI-dev").integers(0, 900, (100, 900))
    rho = np.array([[stats.spearmanr(row[i], gold[i]).statistic for row in rows] for i in chosen])
    low, high = np.quantile(rho[:, 0] - rho[:, 1], [0.025, 0.975])
    d = found["item_level"]["tasks"]["avg"]
    assert (d["low"], d["high"]) == pytest.approx((low, high), abs=1e-6)
    assert found["interval"] == [d["low"], d["high"]]
    assert (found["test"], found["p"], found["findings"][0]["minimum_p"]) == ("items", 2 / 101, 2 / 101)
    assert (d["draws"], d["n"], found["seed_level"]) == (100, 900, None)
    r12, r13, r23 = [stats.spearmanr(x, y).statistic for x, y in ((rows[0], gold), (rows[1], gold), rows)]
    (pair,) = found["item_level"]["checkpoints"]
    assert pair["seeds"] == [2, None]
    assert pair["williams"]["MINI-dev"]["p"] == pytest.approx(williams(r12, r13, r23, 900).p)
    assert pair["steiger"]["MINI-dev"]["p"] == pytest.approx(steiger(r12, r13, r23, 900).p)
    size, *ends = (round(100 * d[name], 2) for name in ("difference", "low", "high"))
    assert numbers_in(found["verdict"].replace("noise#2", "")) == [2, size, 95, *ends, 0.0198]
    assert not missing_facts(found["verdict"], "2 checkpoints, new items", "word_overlap is ahead")
    assert numbers_in(found["statements"][0]) == [0.0198, 100]


def test_several_methods_are_corrected_as_one_family(cli: Cli, take: Take, tmp_path: Path) -> None:
    take(3, "noise", NOISY, "word_overlap")
    rewrite(tmp_path / "results/local/mini", "noise/*", shifted(0.02))
    rewrite(tmp_path / "results/local/mini", "*/*", other_version)  # so that nothing contradicts them
    found = as_json(cli, "noise", "--against", f"{NOISY},word_overlap", "--seeds-only")
    raw = [one["p"] for one in found]
    adjusted = [one["corrected"]["p"] for one in found]
    first, last = (raw.index(p) for p in sorted(raw))  # Holm by hand: the smaller twice, the larger once
    assert adjusted[first] == pytest.approx(2 * raw[first])
    assert adjusted[last] == pytest.approx(max(2 * raw[first], raw[last]))
    family = f"Holm over 2 comparisons (noise against {NOISY}, word_overlap)"
    assert all(one["corrected"]["family"] == family for one in found)
    assert not missing_facts(found[1]["verdict"], "Student's test", family)
    for one in found:
        low, high = one["corrected"]["interval"]
        assert (low > 0 or high < 0) == (one["corrected"]["p"] <= 0.05)
        alone = one is found[last] and one["corrected"]["p"] <= 0.05  # the last step of Holm's
        assert one["corrected"]["level"] == pytest.approx(0.95 if alone else 0.975)
    assert found[0]["corrected_tasks"] == {}


def test_two_campaigns_are_compared_method_by_method(cli: Cli, take: Take, tmp_path: Path) -> None:
    take(10, "noise", "word_overlap")
    make_lone(tmp_path)
    again = tmp_path / "results" / "again"
    shutil.copytree(tmp_path / "results" / "local", again)
    measure_anew(ResultStore(tmp_path / "results", "again"), "noise", 10)
    arguments = ("compare", "results/local", "results/again", "--draws", "100", "--format", "json")
    code, out, err = cli(*arguments)
    assert code == 0
    assert not missing_facts(err, "left out", "mini, suite mini-dev", "lone (local)")
    noise, overlap = json.loads(out)
    assert (noise["first"], noise["second"]) == ("noise (local)", "noise (again)")
    assert noise["seeds"] == [list(range(1, 11))] * 2
    assert noise["corrected"]["family"].startswith("Benjamini-Hochberg over 2")
    (repeats,) = (line for line in noise["limits"] if "one specification" in line)
    assert numbers_in(repeats) == [10, 9]
    assert (overlap["test"], overlap["p"], overlap["difference"]) == ("items", 1, 0)
    assert not missing_facts(overlap["verdict"], "two encoders", "no significant", "word_overlap (local)")
    assert (noise["test"], noise["seed_level"]["design"]["pairs"]) == ("components", "have one specification")
    (one,) = as_json(cli, "noise", "results/again/mini/noise")
    assert (one["first"], one["second"], one["corrected"]) == ("noise (local)", "noise (again)", None)
    single = as_json(cli, "results/local/mini/noise/seed-1/mini-dev.json", "noise#10")
    folder, file = "results/again/mini/noise/seed-1", "results/local/mini/noise/seed-10/mini-dev.json"
    assert single == as_json(cli, folder, file)
    assert (single[0]["first"], single[0]["second"]) == ("noise#1", "noise#10")
    moved = tmp_path / "results" / "again" / "tiny"
    (again / "mini").rename(moved)
    rewrite(again, "tiny/*/*", lambda record: replace(record, profile="tiny"))
    (across,) = as_json(cli, "noise", "results/again/tiny/noise")
    assert across["profile"] == "mini and tiny"
    assert not missing_facts(across["statements"], "mini against tiny")


def test_failed_seeds_are_named(cli: Cli, take: Take, tmp_path: Path) -> None:
    take(5)

    def fails(record: RunRecord) -> RunRecord:
        return replace(record, status="failed", reason="the loss is not finite", scores=(), predictions=None)

    for seed in (2, 4):
        rewrite(tmp_path / "results/local/mini", f"noise/seed-{seed}", fails)
    for name in ("noise", "results/local/mini/noise"):
        (found,) = as_json(cli, name, NOISY, "--seeds-only")
        for sentences in (found["statements"], found["limits"]):
            assert not missing_facts(sentences, "Failed", "seeds 2,4", "not finite")
    (found,) = as_json(cli, "noise#1", f"{NOISY}#1")
    assert not any("Failed" in line for line in found["statements"])


def test_a_campaign_may_be_called_as_a_seed_is(cli: Cli, take: Take, tmp_path: Path) -> None:
    """Its runs are those of methods all the same, not checkpoints."""
    take(3)
    for name in ("seed-42", "other"):
        shutil.copytree(tmp_path / "results/local", tmp_path / "results" / name)
    (tmp_path / "results/seed-42/along.json").write_text("{}")
    found = as_json(cli, "results/seed-42", "results/other")
    assert [one["seeds"] for one in found] == [[[1, 2, 3], [1, 2, 3]]] * 2
    assert {one["first"] for one in found} == {"noise (seed-42)", f"{NOISY} (seed-42)"}
    (single,) = as_json(cli, "results/seed-42/mini/noise/seed-1", "results/other/mini/noise/seed-2")
    assert single["first"] == "noise#1"


def test_what_speaks_for_less_is_corrected_for_all_comparisons(cli: Cli, take: Take, tmp_path: Path) -> None:
    """Also where a comparison has nothing of its kind: without predictions, or without seeds."""
    take(4, "noise", NOISY, "word_overlap")
    make_lone(tmp_path, 4)
    root = tmp_path / "results/local/mini"
    for path in root.glob("lone/*/*.npz"):
        path.unlink()
    for first, others in (("noise", f"{NOISY},lone"), ("word_overlap", f"untrained,{NOISY}")):
        if first == "word_overlap":
            shutil.copytree(root / "word_overlap", root / "untrained")
            rewrite(root, "untrained/*", lambda record: replace(record, method="untrained"))
        for one in as_json(cli, first, "--against", others):
            for finding in one["findings"]:
                assert numbers_in(finding["corrected"]["family"])[0] == 2


@pytest.mark.parametrize("what", ["data", "predictions"])
def test_without_items_the_seeds_still_speak(cli: Cli, take: Take, tmp_path: Path, what: str) -> None:
    take(2)
    if what == "data":
        rewrite(tmp_path / "results/local/mini", "*/*", other_version)
        reason = ["MINI-dev", "the version"]
    else:
        (tmp_path / "results/local/mini/noise/seed-2/mini-dev.npz").unlink()
        reason = ["predictions", "mini-dev.npz", "run the cell again"]
    (found,) = as_json(cli, "noise", NOISY)
    assert found["item_level"] is None
    assert not missing_facts(found["verdict"], "New seeds", "2 seeds", "no significant")
    (line,) = (line for line in found["statements"] if line.startswith("Items: left out: "))
    assert not missing_facts(line, *reason)
    assert not missing_facts(refusal(cli, "compare", "noise#2", f"{NOISY}#2"), *reason)


def trained(text: str, key: str = "", size: int = 64) -> Change:
    """As trained on a text, with a stage of this key a seed."""

    def change(record: RunRecord) -> RunRecord:
        stage = {"key": f"{key or record.method} {record.seed}", "sentences_seen": 10 * size}
        return replace(
            record,
            options={**record.options, "batch_size": size, "lr": 0.1},
            training={"corpus": {"name": text, "sha256": text}, "stages": {"one": stage}},
        )

    return change


@pytest.mark.parametrize(
    ("change", "pairs"),
    [
        (trained("a"), "see the same sentences in the same order"),
        (trained("b", key="noise"), "have 1 trained stage in common"),
        (trained("b"), None),
        (trained("a", size=32), None),
        (lambda record: record, None),
    ],
)
def test_seeds_are_pairs_only_where_runs_share_data_order_or_stages(
    take: Take, tmp_path: Path, change: Change, pairs: str | None
) -> None:
    take(6)
    a, b = group(tmp_path, "noise", trained("a")), group(tmp_path, NOISY, change)
    runs = [CampaignRun(run.store, shifted(0.001 * i)(run.record)) for i, run in enumerate(b.runs)]
    b = Group(b.label, tuple(runs))
    found = compare(a, b)
    x, y, level = a.scores("avg"), b.scores("avg"), level_of(found)
    said, exact = sentence(found, "Test over seeds: "), level.exact["avg"]
    if pairs is None:
        assert level.design == Design("welch", "auto", None)
        assert (found.headline.p, exact) == (welch(x, y).p, exact_permutation(x, y))
        assert not missing_facts(said, "Welch's test", "unpaired", "not known")
    else:
        assert level.design == Design("paired", "auto", pairs)
        assert (found.headline.p, exact) == (paired_t(x, y).p, sign_flip(x, y, same_order=True))
        assert not missing_facts(said, "paired t test", "paired by seed", pairs)


def test_limits_name_what_else_differs(take: Take, tmp_path: Path) -> None:
    take(2)
    a, b = group(tmp_path, "noise", trained("a")), group(tmp_path, NOISY, trained("b", size=32))

    def elsewhere(record: RunRecord) -> RunRecord:
        return replace(record, provenance={**record.provenance, "threads": 9, "platform": "a toaster"})

    b = Group(b.label, tuple(CampaignRun(run.store, elsewhere(run.record)) for run in b.runs))
    specification, sentences, machine = describe_confounders(a, b)
    assert not missing_facts(specification, "64 against 32", "a against b")
    platform = a.runs[0].record.provenance["platform"]
    assert numbers_in(sentences) == [640, 320]
    assert not missing_facts(machine, "1 against 9", f"platform {platform} against", "a toaster")
    c = Group("c", tuple(CampaignRun(run.store, replace(run.record, name="x\x1b[31m")) for run in a.runs))
    assert "noise and x\\x1b[31m" in describe_confounders(a, c)[0]


def test_both_levels_stand_side_by_side(cli: Cli, take: Take, tmp_path: Path) -> None:
    take(5)
    code, out, err = cli("compare", "noise", NOISY, "--draws", "100", "--level", "0.9", "--details")
    assert (code, err) == (0, "")

    def numbers(start: str) -> list[list[float]]:
        return [numbers_in(line) for line in out.splitlines() if line.strip(" -").startswith(start)]

    a, b = group(tmp_path, "noise").scores("avg"), group(tmp_path, NOISY).scores("avg")
    ends = [round(100 * end, 2) for end in (welch(a, b, 0.9).low, welch(a, b, 0.9).high)]
    assert numbers("avg") == [[-2.32, -2.32, 0, *ends, 1, 1, round(2 / 252, 4), 0, 0, 1]]
    rows = [row for seed in range(1, 6) for row in numbers(f"{seed} ")]
    assert rows == [[seed, 0, 0, 0, 1, 0.0198, 0, 0, 0] for seed in range(1, 6)]
    assert numbers("Checkpoint by checkpoint") == [[1, 0.1]]
    assert numbers("noise scores above") == [[2, 50, 25, 50, 90, 22, 78, 0]]
    assert numbers("Almost stochastic")[0][1:] == [0.5, round(100 * find_coverage("aso", 5, 5).measured)]
    assert numbers("These 10 checkpoints") == [[10, 0, 0, 1, 0.0198, 100]]
    assert not missing_facts(out, "seeds 90%", "items 90%", "The present 5 seeds", "chance of 12%")


def test_equal_scores_give_no_effect_size_and_no_power(take: Take, tmp_path: Path) -> None:
    take(2)

    def constant(record: RunRecord) -> RunRecord:
        return replace(record, scores=tuple(replace(score, value=0.5) for score in record.scores))

    found: Comparison = compare(group(tmp_path, "noise", constant), group(tmp_path, NOISY, constant))
    level, given = level_of(found), found.answers
    assert (level.hedges_g, level.aso, level.spread, given.plan, given.power) == (None,) * 5
    assert level.superiority.share == 0.5
    said = describe_verdict(found)
    assert numbers_in(said)[-2:] == [95, 0.3333]
    assert not missing_facts(said, "2 seeds", "cannot", "no score varies")


def test_numbers_in_words() -> None:
    seeds = [format_seeds(seeds) for seeds in ((), (4,), (1, 2), (1, 2, 3), (1, 3, 4))]
    assert seeds == ["no seeds", "seed 4", "seeds 1,2", "seeds 1-3", "seeds 1,3,4"]
    assert [format_p_value(p) for p in (0, 0.00004, 0.00794, 1)] == ["0.0000", "<0.0001", "0.0079", "1.0000"]
    assert [format_percent(level) for level in (0.5, 0.95, 0.999)] == ["50%", "95%", "99.9%"]


def test_a_suite_that_cannot_be_compared_stops_no_other(cli: Cli, take: Take) -> None:
    take(3, "noise", NOISY)
    assert cli("run", "--methods", f"noise,{NOISY}", "--seeds", "1", "--suite", "mini")[0] == 0
    code, out, err = cli("compare", "noise", NOISY, "--draws", "100", "--format", "json")
    assert (code, [found["suite"] for found in json.loads(out)]) == (0, ["mini-dev"]), err
    assert not missing_facts(err, "left out", "mini, suite mini", "noise has one")
    code, _, err = cli("compare", "noise", NOISY, "--draws", "100", "--suite", "mini")
    assert (code, "left out" in err) == (2, False)
