from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from bench.config import profiles
from bench.config.method_ids import parse_methods
from bench.config.run_spec import RunSpec
from bench.config.sweep_manifest import Manifest, load_manifests, save_manifest
from bench.config.sweeps import SWEEPS, Backbone, SweepPoint, single_encoders
from bench.errors import DataError
from bench.losses.twin_losses import ltn
from bench.plan.plan import make_plan
from bench.reports.tables.sweep_tables import norm_factor, sweep_grids
from tests.support.architectures import tiny
from tests.support.campaigns import make_record
from tests.support.cli import Cli, refusal
from tests.support.messages import check_error, missing_facts, numbers_in
from tests.support.tncse import sets
from tests.support.training import stage_folders

DEEP = "unsee_barlow[architecture=online_projection,lr=3e-05,batch_size=64,max_length=32,layers={}]"


@pytest.fixture
def sweep(cli: Cli, tiny_bert: Path, corpus: Path) -> Cli:
    where = ("--suite", "toy", "--backbone", str(tiny_bert), "--corpus", str(corpus), "--dev", "toy")
    return lambda name, *options: cli("sweep", name, "--seeds", "1-2", *where, *options)


@pytest.mark.parametrize(
    ("name", "places", "methods"),
    [
        ("loss_terms", 16, "tncse jtcse[nce=false,icnce=false,ictn=false] tncse[icnce=false]"),
        ("caels", 5, "jtcse[caels=0] jtcse[caels=1] jtcse[caels=2] jtcse[caels=3] jtcse[caels=6]"),
        ("single", 3, "simcse[text=train+sick] tncse_single tncse_single[ictn=false]"),
        ("layer_norms", 16, "tncse tncse[ltn_input=cls] jtcse[drop_norms=6]"),
        ("modified_steps", 15, "mhe m_mhe[w=false,r=false] m_mhe[r=false] m_mhe m_mhs[r=false] m_mhs"),
        ("paradigm_m", 8, "paradigm[m=0.3] paradigm[m=1]"),
        ("paradigm_tau", 8, "paradigm[tau=0.01] paradigm[tau=3]"),
        ("paradigm_r", 8, "paradigm[ratio=0.25] paradigm[ratio=2]"),
        ("modified_grid_1", 64, "m_vicreg[batch_size=512,lr=5e-06,m=0.3,tau=0.05,ratio=1]"),
        ("modified_grid_1", 64, "m_mhs[batch_size=64,lr=1e-05,m=0.3,ratio=1]"),
        ("modified_grid_2", 200, "m_barlow[m=0.37,ratio=1.25,tau=0.05] m_mhs[m=0.27,ratio=2]"),
        ("unsee_architectures", 12, "unsee_vicreg[architecture=projection]"),
        ("unsee_depth_online_projection", 20, " ".join(map(DEEP.format, range(1, 6)))),
        ("unsee_mlp", 20, "unsee_byol[layers=1] unsee_corinfomax[layers=5]"),
        ("decoder_pooling", 37, "untrained[pooling=last] prompteol_cse"),
        ("crop_views", 4, "crop crop[dropout=0] crop[views=dropout] crop[views=dropout_span]"),
        ("norm_ratio", 0, ""),
    ],
)
def test_grids(name: str, places: int, methods: str) -> None:
    points = list(SWEEPS[name].points(Backbone(layers=6, pooler=True)))
    assert len(points) == len({(p.row, p.column) for p in points}) == places
    assert set(methods.split()) <= {p.method for p in points}


def test_grids_over_methods_hold_every_baseline_that_trains() -> None:
    baselines = single_encoders()
    assert "simcse" in baselines
    assert "untrained" not in baselines
    without = {p.column for p in SWEEPS["pooling"].points(Backbone(4, pooler=False))}
    assert without == {"cls", "avg", "avg_first_last"}
    everywhere = list(SWEEPS["pooling"].points(Backbone(4, pooler=True)))
    assert len(everywhere) == 4 * (3 + len(baselines))
    assert len(list(SWEEPS["sick"].points(Backbone(4, False)))) == 2 * (2 + len(baselines))
    pairs = [p.method for p in SWEEPS["dual_ensembles"].points(Backbone(4, False))]
    assert "ensemble:simcse[text=a+sick]+simcse[text=b+sick]" in pairs


def test_poolings_of_a_decoder(cli: Cli, tmp_path: Path, corpus: Path) -> None:
    folder = tiny("gpt2", tmp_path / "gpt2", length=128)
    corpus.write_text("".join(f"The doctor reads book {number}.\n" for number in range(300)))
    where = ["--suite", "toy", "--seeds", "1", "--dev", "toy"]
    where += ["--backbone", str(folder), "--corpus", str(corpus)]
    error = refusal(cli, "sweep", "pooling", *where, "--dry-run")
    assert not missing_facts(error, "gpt2 is a causal decoder", "bench sweep decoder_pooling")
    sets = ("--set", "prompteol_cse.lora_rank=4")
    code, out, err = cli("sweep", "decoder_pooling", *where, *sets, "--dry-run")
    assert code == 0, err
    points = list(SWEEPS["decoder_pooling"].points(Backbone(2, pooler=False)))
    assert f"{len(points)} of {len(points)} cells" in out
    methods = [point.method for point in points]
    assert {"simcse[train_pooling=last,pooling=avg]", "prompteol_cse"} < set(methods)
    assert not any("cls" in method or method.startswith(("tncse", "promptbert")) for method in methods)
    code, _, error = cli("sweep", "single", *where, "--dry-run")
    assert (code, "simcse[text=train+sick] seed 1 needs a first token" in error) == (2, True)
    for row in (f"prompteol:{folder}", f"pretended_cot:{folder}", f"metaeol:{folder}", "prompteol_cse"):
        error = refusal(cli, "run", "--methods", f"{row}[pooling=avg]", *where[:2], "--dry-run")
        assert "has no option 'pooling'" in error
    line = ("run", "--methods", f"compressed[of=metaeol:{folder},dims=8]", *where[:2], "--dry-run")
    assert cli(*line)[0] == 0


def test_dry_run_of_a_sweep(sweep: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bench.cli.sweep.print_estimate", lambda plan: print("about", len(plan.jobs)))
    code, out, err = sweep("caels", *sets("jtcse"), "--estimate")
    assert (code, err) == (0, "")
    facts = ("cross-attention", "JTCSE, Table IX", "jtcse[caels=0]", "jtcse[caels=3]", "3 methods")
    assert not missing_facts(out, *facts, "seeds 1-2", "6 of 6 cells", "10 training stages", "8 uses shared")
    assert out.endswith("about 6\n")


@pytest.mark.long
@pytest.mark.slow
def test_sweeps_share_cells_and_survive_failures(cli: Cli, sweep: Cli, tmp_path: Path) -> None:
    short = (*sets("tncse", eval_every=2), *sets("jtcse", eval_every=2, caels=3), "--seeds", "1")
    code, first, err = sweep("layer_norms", *short)
    assert code == 0, err
    trained = stage_folders(tmp_path)
    assert len(trained) == 2 + 2 * (4 + 1)  # shared sub-encoders; a joint stage of each twin and column
    norms = [line.split() for line in first.splitlines() if line.split()[:1] in (["0"], ["1"], ["2"], ["3"])]
    assert [len(row) for row in norms] == [9] * 4  # LTN on the pooler: only the first
    assert len({row[5] for row in norms}) == 4  # without LayerNorm lengths differ
    # at this rate the joint loss overflows: jtcse fails, except without terms, which skips that stage
    code, second, err = sweep("loss_terms", *short, "--set", "jtcse.lr=1e30", "--campaign", "other")
    assert (code, "cell(s) failed" in err) == (1, True)
    assert trained.items() <= stage_folders(tmp_path).items()
    assert "Failed: jtcse" in second
    row = next(line for line in second.splitlines() if "nce + icnce + ictn" in line)
    assert row.split()[-1] == "-"
    none = next(line for line in second.splitlines() if line.split()[:1] == ["none"]).split()
    assert none[1] == none[2] != "-"
    code, out, _ = cli("report", "--details")  # the campaign of the first
    assert (code, first.strip() in out) == (0, True)
    assert cli("report", "--details")[1] == out
    for form, start in (("markdown", "### Sweep layer"), ("latex", r"\caption{Sweep layer\_norms")):
        assert start in cli("report", "--format", form)[1]
    grid = json.loads(cli("report", "--format", "json")[1])[-1]
    assert grid["title"].startswith("Sweep layer_norms")
    assert [row[0] for row in grid["rows"]] == ["0", "1", "2", "3"]
    assert cli("report", "--figures", "figures")[0] == 0
    (svg,) = (tmp_path / "figures").glob("*-layer_norms-*.svg")
    assert svg.with_suffix(".pdf").read_bytes().startswith(b"%PDF")
    assert svg.with_suffix(".png").read_bytes().startswith(b"\x89PNG")
    assert b"<svg" in svg.read_bytes()


@pytest.mark.parametrize("name", [name for name in SWEEPS if name.startswith(("modified", "paradigm"))])
def test_grids_of_the_gradient_paradigm_are_distinct(tiny_bert: Path, tmp_path: Path, name: str) -> None:
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("".join(f"This is sentence {i}.\n" for i in range(512)))  # the largest batch
    methods = [point.method for point in SWEEPS[name].points(Backbone(3, True))]
    asked = parse_methods(",".join(methods))
    plan = make_plan(RunSpec(asked, (1,), "mini", ("toy",), str(tiny_bert), corpus=corpus, dev="toy"))
    assert len({job.cell.method for job in plan.jobs}) == len(plan.jobs) == len(methods)
    assert len({job.key for job in plan.jobs}) == len(methods)


def test_the_surface_has_no_cells(cli: Cli, tmp_path: Path) -> None:
    code, out, _ = cli("sweep", "norm_ratio")
    assert (code, "cos 0.9" in out) == (0, True)
    manifest = tmp_path / "results" / "local" / "sweeps" / "mini-norm_ratio.json"
    assert json.loads(manifest.read_text())["points"] == []
    manifest.write_text("{}")
    assert cli("run", "--methods", "word_overlap", "--suite", "toy")[0] == 0
    code, _, err = cli("report")
    assert (code, missing_facts(err, "mini-norm_ratio.json", "damaged")) == (2, [])


def test_the_surface_of_a_profile_from_a_file(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    shutil.copy(Path(profiles.__file__).parent / "mini.toml", tmp_path / "own" / "mine.toml")
    assert cli("sweep", "norm_ratio", "--profile", "own/mine.toml")[0] == 0
    (kept,) = load_manifests(tmp_path / "results" / "local")
    assert (kept.sweep, kept.profile) == ("norm_ratio", "mine")


@pytest.mark.parametrize("profile", ["../../evil", "/evil", "other"])
def test_a_grid_is_where_it_says(tmp_path: Path, profile: str) -> None:
    path = tmp_path / "sweeps" / "mini-caels.json"
    save_manifest(Manifest("caels", "mini", ("toy",), (1,), (("0", "jtcse", "jtcse[caels=0]"),)), tmp_path)
    (grid,) = load_manifests(tmp_path)
    path.write_text(path.read_text().replace('"mini"', json.dumps(profile)))
    facts = ("damaged", "sweep caels", f"profile {profile}", "delete it")
    check_error(lambda: load_manifests(tmp_path), *facts, kind=DataError)
    if "/" in profile:
        check_error(lambda: save_manifest(replace(grid, profile=profile), tmp_path), profile, kind=DataError)
    assert [file.name for file in tmp_path.rglob("*.json")] == ["mini-caels.json"]


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> tuple[str, ...]:
    """The command of a sweep that trains nothing."""
    points = (SweepPoint("0", "a", "noise"), SweepPoint("1", "a", "word_overlap"))
    monkeypatch.setitem(SWEEPS, "caels", replace(SWEEPS["caels"], points=lambda _: points))
    return ("sweep", "caels", "--workers", "1")


def test_a_sweep_of_another_suite_keeps_the_first(cli: Cli, tmp_path: Path, quick: tuple[str, ...]) -> None:
    assert cli(*quick, "--seeds", "1-2", "--suite", "toy")[0] == 0
    code, out, _ = cli(*quick, "--seeds", "2,4", "--suite", "mini")
    assert (code, "caels, mini" in out, "caels, toy" in out) == (0, True, False)
    (kept,) = load_manifests(tmp_path / "results" / "local")
    assert (kept.suites, kept.seeds) == (("toy", "mini"), (1, 2, 4))
    out = cli("report", "--table", "ablation:caels")[1]
    assert ("caels, toy" in out, "caels, mini" in out, "Not run yet" in out) == (True, True, False)
    for suite, other in (("toy", "mini"), ("mini", "toy")):
        out = cli("report", "--suite", suite)[1]
        assert (f"caels, {suite}" in out, f"caels, {other}" in out) == (True, False)
    assert cli("run", "--methods", "word_overlap", "--suite", "mini-dev", *quick[2:])[0] == 0
    assert "caels" not in cli("report", "--suite", "mini-dev")[1]


def test_a_sweep_with_other_cells_is_refused(
    cli: Cli, tmp_path: Path, quick: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cli(*quick, "--seeds", "1", "--suite", "toy")[0] == 0
    file = tmp_path / "results/local/sweeps/mini-caels.json"
    before = file.read_bytes()
    points = (SweepPoint("0", "a", "noise[scale=2]"), SweepPoint("1", "a", "word_overlap"))
    monkeypatch.setitem(SWEEPS, "caels", replace(SWEEPS["caels"], points=lambda _: points))
    for flags in ((), ("--dry-run",)):
        err = refusal(cli, *quick, "--seeds", "1", "--suite", "toy", *flags)
        assert not missing_facts(err, "mini-caels.json", "other cells", "the 2 cells", "another --campaign")
    assert file.read_bytes() == before
    file.write_text("{}")
    err = refusal(cli, *quick, "--seeds", "1", "--suite", "toy")
    assert not missing_facts(err, "damaged", "'sweep'", "delete it", "bench sweep")


def test_unknown_sweeps(cli: Cli) -> None:
    for name in ("cael", ""):
        assert not missing_facts(refusal(cli, "sweep", name), f"unknown sweep '{name}'", "caels")


def test_the_surface_is_ltns_norm_factor() -> None:
    def at(cosine: float, length: float = 1.0) -> torch.Tensor:
        return length * torch.tensor([[cosine, (1 - cosine**2) ** 0.5]] * 2, dtype=torch.float64)

    k, t, one = 2.5, 0.3, float(np.exp(-1))  # the angle's -log is 1
    loss = ltn(at(1.0), at(1.0, k), at(one), at(t), scale=1.0)
    assert float(loss) == pytest.approx(float(norm_factor(k, t)))
    assert norm_factor(1, 1) == 0
    assert norm_factor(0, 0.5) == norm_factor(3, -1) == 1


def test_collapse_figures_are_compared_over_seeds() -> None:
    ends = {  # effective rank and mean cosine of three seeds' last dev vectors
        "projection": [(2.0, 0.9), (3.0, 0.8), (4.0, 0.7)],
        "single_projection": [(40.0, 0.1), (42.0, 0.2), (44.0, 0.3)],
    }
    records = []
    for architecture, seeds in ends.items():
        for seed, end in enumerate(seeds, start=1):
            record = make_record(architecture, seed, {"MINI": 0.5}, suite="mini")
            record.training["stages"]["simcse"]["collapse_curve"] = [[10, 20.0, 0.5, 0.6], [20, *end, 0.4]]
            records.append(record)
    places = tuple((name, "unsee_byol", name) for name in ends)
    manifest = Manifest("unsee_architectures", "mini", ("mini",), (1, 2, 3), places)
    (grid,) = sweep_grids([manifest], records, "camp")
    assert [row[-1] for row in grid.rows] == ["3.0", "42.0"]
    # ranks: standard error sqrt(1/3 + 4/3), df (5/3)^2 / ((1/9 + 16/9) / 2) = 2.94, t 3.219;
    # cosines: 0.0816, 4, 2.776
    (note,) = [note for note in grid.notes if "unsee_byol" in note]
    assert numbers_in(note) == [39.0, 34.8, 43.2, -0.6, -0.827, -0.373]
