"""The published settings of every method: the card's defaults with what a profile changes."""

from __future__ import annotations

from typing import Any

import pytest

from bench.config.profiles import load_profile
from bench.plan.cells import profile_options
from bench.registry import discover
from tests.support.paradigm import NAMES

_PAIRS = {  # every loss of the gradient paradigm
    "max_length": 32, "epochs": 1, "steps": 0, "weight_decay": 0.0, "clip": 1.0, "dropout": 0.1,
    "schedule": "linear",
}  # fmt: skip
_PAIRS_BY_PROFILE = {
    "bert-base": {"batch_size": 128, "eval_every": 125, "head_input": "cls"},
    "roberta-base": {"batch_size": 512, "eval_every": 50, "head_input": "tanh"},
}
_STEPS = {"gd": True, "w": True, "r": True, "form": "released"}
_OWN: dict[tuple[str, str], dict[str, Any]] = {
    ("mhe", "bert-base"): {"nu": 10.0, "form": "released"},
    ("mhs", "bert-base"): {"nu": 1.0, "form": "released", "lr": 5e-6},
    ("barlow", "bert-base"): {"nu": 30.0, "form": "released"},
    ("vicreg", "bert-base"): {"nu": 30.0, "form": "released"},
    ("m_mhe", "bert-base"): _STEPS | {"m": 0.3, "tau": 0.05, "ratio": 1.75, "nu": 10.0},
    ("m_mhs", "bert-base"): _STEPS | {"m": 0.3, "ratio": 1.75, "nu": 1.0},
    ("m_barlow", "bert-base"): _STEPS | {"m": 0.3, "tau": 0.05, "ratio": 1.5, "nu": 30.0},
    ("m_vicreg", "bert-base"): _STEPS | {"m": 0.3, "tau": 0.05, "ratio": 1.5, "nu": 30.0},
    **{(name, "roberta-base"): {"lr": 1e-6} for name in ("mhe", "mhs", "barlow", "vicreg")},
    ("m_mhe", "roberta-base"): {"m": 0.3, "ratio": 1.25},
    ("m_mhs", "roberta-base"): {"m": 0.27, "ratio": 1.0},
    ("m_barlow", "roberta-base"): {"m": 0.37, "ratio": 1.25},
    ("m_vicreg", "roberta-base"): {"m": 0.37, "ratio": 1.25},
}
_TWINS: list[tuple[str, str, dict[str, Any]]] = [
    ("tncse", "bert-base", {"lr": 1e-6, "sub1.lr": 1.5e-5, "sub2.lr": 2e-5, "dropout": 2.5e-4}),
    ("tncse", "roberta-base", {"lr": 1e-6, "sub1.lr": 1.5e-5, "sub2.lr": 1.25e-5, "dropout": 0.0175}),
    ("jtcse", "bert-base", {"lr": 1.3e-6, "sub1.lr": 1.5e-5, "sub2.lr": 2e-5, "caels": -1}),
    ("jtcse", "roberta-base", {"lr": 1e-6, "sub1.lr": 1.5e-5, "sub2.lr": 1.25e-5, "batch_size": 256}),
    ("unsee_byol", "bert-base", {"lr": 1e-4, "warmup": 0.1, "decay": 0.999, "layers": 3, "pooling": "avg"}),
    ("unsee_barlow", "bert-base", {"lr": 1e-4, "warmup": 0.1, "decay": 0.999, "layers": 4}),
]


@pytest.mark.parametrize(
    ("name", "profile", "expected"),
    [
        *(
            (name, profile, {"lr": 1e-5} | _PAIRS | changes | _OWN.get((name, profile), {}))
            for profile, changes in _PAIRS_BY_PROFILE.items()
            for name in NAMES
        ),
        *_TWINS,
    ],
)
def test_settings(name: str, profile: str, expected: dict[str, Any]) -> None:
    given = profile_options(discover().get(name).card, load_profile(profile))
    assert {option: given[option] for option in expected} == expected


def test_a_loss_has_no_option_that_it_does_not_read() -> None:
    """An unmodified loss has no steps, and MHS's weights need no temperature."""
    for name in NAMES:
        options = {option.name for option in discover().get(name).card.options}
        if name in ("mhe", "mhs", "barlow", "vicreg"):
            assert not {"gd", "w", "r", "m", "tau", "ratio"} & options
        assert (name == "m_mhs") == ("factor" in options)
    assert "tau" not in {option.name for option in discover().get("m_mhs").card.options}
