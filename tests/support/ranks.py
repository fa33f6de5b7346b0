"""Trainings that several processes share."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bench.method_card import OptionValue

CASES: dict[str, tuple[str, dict[str, OptionValue], str]] = {
    "simcse": ("simcse", {}, "simcse"),
    "simcse_noise": ("simcse", {"noise_negatives": 3}, "simcse"),
    "arccse": ("arccse", {"triplet_min_length": 4}, "arccse"),
    "esimcse": ("esimcse", {"queue": 6, "momentum_init": "pretrained"}, "esimcse"),
    "consert": ("consert", {"view2": "token_cutoff"}, "consert"),
    "mirror_bert": ("mirror_bert", {}, "mirror_bert"),
    "crop": ("crop", {}, "crop"),
    "ct": ("ct", {"negatives": 2}, "ct"),
    "ct_batch": ("ct_batch", {"scale": 0.1}, "ct_batch"),
    "tsdae": ("tsdae", {}, "tsdae"),
    "scd": ("scd", {"width": 8, "dropout2": 0.0}, "scd"),
    "iscse": ("iscse", {"buffer": 5, "neighbours": 2, "batch_size": 5}, "iscse"),
    "diffcse": ("diffcse", {"mask": 0.5}, "diffcse"),
    "infocse": ("infocse", {"mask": 0.5, "mlm_weight": 1.0}, "infocse"),
    "rankcse": ("rankcse", {}, "rankcse"),
    "pcl": ("pcl", {"rounds": 1}, "pcl"),
    "mixcse": ("mixcse", {}, "mixcse"),
    "dclr": ("dclr", {}, "dclr"),
    "promptbert": ("promptbert", {}, "promptbert"),
    "sncse": ("sncse", {"bml_weight": 1.0, "max_length": 30}, "sncse"),
    "whitenedcse": ("whitenedcse", {"groups": 8}, "whitenedcse"),
    "sup_simcse": ("sup_simcse", {}, "sup_simcse"),
    "angle": ("angle", {"cosine_weight": 1.0}, "angle"),
    "vascl": (
        "vascl",
        {"neighbours": 2, "radius": 0.5, "tau": 0.5, "perturbed_gradient": "encoder"},
        "vascl",
    ),
    "denosent": ("denosent", {"decoder_layers": 1, "decoder_inner": 8, "noise": 0.0, "rtt": "d"}, "denosent"),
    "bsl": ("bsl", {"rtt": "none", "drop_last": True}, "bsl"),
    "unsee_barlow": ("unsee_barlow", {"layers": 1}, "unsee_barlow"),
    "unsee_corinfomax": ("unsee_corinfomax", {"layers": 1}, "unsee_corinfomax"),
    "m_mhe": ("m_mhe", {}, "m_mhe"),
    "tncse": ("tncse", {"rtt": "none"}, "joint"),
    "jtcse": ("jtcse", {"rtt": "none", "caels": 3}, "joint"),
    "tncse_d": ("tncse_d", {}, "distill"),
    "contrastive": ("tncse_d", {"student_loss": "contrastive", "student_queue": 4}, "distill"),
    "edfse_d": ("edfse_d", {}, "distill"),
}


def largest(arrays: Mapping[str, NDArray[np.float64]]) -> float:
    return max(float(np.abs(array).max()) for array in arrays.values())


def arguments(model: Path, text: Path, *more: str) -> tuple[str, ...]:
    short = ("simcse.steps=4", "simcse.batch_size=5", "simcse.eval_every=2", "simcse.dropout=0")
    sets = [part for item in short for part in ("--set", item)]
    where = ("--suite", "toy", "--dev", "toy", "--backbone", str(model), "--corpus", str(text))
    return ("run", "--methods", "simcse", "--seeds", "1", *where, *sets, *more)
