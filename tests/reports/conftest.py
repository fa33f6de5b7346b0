"""One campaign that has something to show in every section."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from bench.config.sweep_manifest import Manifest
from bench.imports import import_records
from bench.reports.campaign import Campaign, make_campaign
from bench.training_probes.evaluations import ProbedEvaluation, TrainingProbes, write_training_probes
from tests.support.campaigns import HOSTILE, TASKS, hostile_campaign, kinds_record, make_record, with_last
from tests.support.published import published_results, three_models

OVERLAP = "task,level,sentences,touched,pairs,clean_pairs\nSTSB,key,10,2,5,4\n"
PROBED = [
    {
        "profile": "mini",
        "method": HOSTILE[0],
        "seed": 1,
        "probes": {
            "density": {"groups": [{"low": 0, "high": 1}], "curves": [[0.5] * 101]},
            "attention_sink": {
                "maps": [{"tokens": ["[CLS]", "secret", "[SEP]"], "layers": [[[0.2, 0.3, 0.5]] * 3]}]
            },
        },
    }
]
ALONG = TrainingProbes(
    "mini",
    "mini-dev",
    tuple(
        ProbedEvaluation(
            *(HOSTILE[0], seed, "joint", step, 0.5 + 0.01 * step * seed),
            {
                "version": 1,
                "data": {"tasks": {"MINI": {}}, "sentences": 3, "suite": "mini-dev"},
                "uniformity": {"value": -0.1 * step},
                "alignment": {"value": 0.5 / (step + seed)},
            },
            (f"stage {seed}",),
            f"stage {seed}",
        )
        for seed in (1, 2)
        for step in range(1, 6)
    ),
)
GRID = "mu_pos,mu_neg,gd_infonce\n0.1,0.2,0.5\n0.1,0.4,0.6\n0.3,0.2,0.1\n0.3,0.4,0\n"
SHARE = {"taus": [0.05, 0.1], "paper": [0.4, 0.2], "released": None}
LEMMA = [{"lambda": 0.5, "kept": 4, "imaginary": 1, "nearer": {"1": 2}, "lower": [0.9, 1.1, 1.15]}]
SIDE = {"lemma": LEMMA, "density": {"positive": [0.5] * 200, "negative": [0.5] * 200}, "hardest_share": SHARE}
STEP = {
    **{"step": 0, "arccon_ratio": 1.1, "met_ratio": None, "positive_cosine": 0.9},
    **{"positive_angle": [0.4, 0.1], "negative_angle": [1.5, 0.2]},
}
MEASURED = {"method": "m_mhe", "seed": 1, "sentences": 256, "steps": [STEP], "before": SIDE, "after": SIDE}
HARDEST = "mu_neg,tau,share,share_released\n0.2,0.05,0.4,0.5\n0.4,0.05,0.5,0.6\n"


@pytest.fixture(scope="session")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> Campaign:
    """Hostile names everywhere, a sweep, gains, and the files of other commands."""
    store = hostile_campaign(tmp_path_factory.mktemp("hostile"))
    more = [
        with_last(
            make_record(method, seed, dict.fromkeys(TASKS, 0.5 + 0.1 * place + 0.01 * seed)), 0.01 * seed
        )
        for place, method in enumerate(("mhe", "m_mhe", "jtcse[caels=1]", "tncse_d"))
        for seed in (1, 2)
    ]
    transfer = [
        make_record("simcse", seed, {"MR": 0.8, "CR": 0.85}, suite="transfer7", metric="accuracy")
        for seed in (1, 2)
    ]
    more += [kinds_record(method, seed) for method in ("simcse", HOSTILE[0]) for seed in (1, 2)]
    models = three_models()
    models.append(replace(models[0], method=f"org/{HOSTILE[0]}"))
    board = published_results(*models)
    more += [import_records.make_record(run, board, "published") for run in models]
    (store.root / "overlap.csv").write_text(OVERLAP)
    (store.root / "probes.json").write_text(json.dumps(PROBED))
    write_training_probes(store.root / "along.json", ALONG)
    (store.root / "gradient").mkdir()
    (store.root / "gradient" / "gradient-grid.csv").write_text(GRID)
    (store.root / "gradient" / "gradient-hardest.csv").write_text(HARDEST)
    (store.root / "gradient" / "m_mhe-seed-1").mkdir()
    (store.root / "gradient" / "m_mhe-seed-1" / "gradient.json").write_text(json.dumps(MEASURED))
    other = store.root / "gradient" / "mhe-seed-1"
    other.mkdir()
    (other / "gradient.json").write_text(json.dumps({**MEASURED, "method": "mhe"}))
    sweep = Manifest(
        "caels", "mini", ("sts7",), (1, 2), (("1", "jtcse", "jtcse[caels=1]"), ("2", "jtcse", "jtcse"))
    )
    return make_campaign(store, [*store.records(), *more, *transfer], (sweep,))
