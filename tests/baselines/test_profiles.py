"""Settings of the baselines in every profile that has an opinion: the released ones, or why not."""

from __future__ import annotations

import pytest

from bench.card import OptionValue
from bench.config import profiles
from bench.plan.cells import profile_options
from bench.registry import discover

SETTINGS: dict[str, dict[str, OptionValue]] = {
    "arccse": {"margin": 10.0, "tau": 0.05, "max_length": 32, "triplet": True, "triplet_min_length": 25},
    "bsl": {
        "lr": 1e-4, "batch_size": 64, "max_length": 64, "warmup": 0.1, "decay": 0.999, "blocks": 3,
        "weight_decay": 0.0, "clip": 1.0, "epochs": 1, "rtt": "copies", "pooling": "avg",
        "adam_eps": 1e-6, "select": "best_of_four",
    },
    "dclr": {
        "batch_size": 128, "lr": 3e-5, "epochs": 3, "max_length": 32, "eval_every": 125, "dropout": 0.1,
        "tau": 0.05, "complement": "simcse", "noise_steps": 4, "noise_rate": 1e-3, "loss": "released",
        "head": "stacked", "mask_padding": False,
    },
    "crop": {
        "lr": 2e-5, "batch_size": 64, "epochs": 1, "tau": 0.05, "warmup": 0.1, "clip": 0.0, "dropout": 0.1,
        "weight_decay": 0.0, "views": "crop", "train_pooling": "avg", "pooling": "avg",
        "shortest_sentence": 100, "longest_sentence": 250,
    },
    "denosent": {
        "lr": 4e-5, "batch_size": 64, "steps": 5000, "warmup": 0.1, "schedule": "constant", "max_length": 32,
        "tau": 0.05, "contrastive_weight": 5.0, "generative_weight": 7.0, "noise": 0.825, "eval_every": 50,
        "decoder_layers": 16, "decoder_heads": 1, "decoder_inner": 2048, "clip": 1.0, "dropout": 0.1,
        "template": '"{sentence}" means {mask}.', "weight_decay": 0.0,
    },
    "diffcse": {
        "batch_size": 64, "epochs": 2, "rtd_weight": 0.005, "tau": 0.05, "max_length": 32,
        "eval_every": 125, "head": "bn",
    },
    "edfse_d": {"distillation": "contrastive"},
    "esimcse": {"queue": 160, "momentum": 0.995, "tau": 0.05, "batch_size": 64, "max_length": 32},
    "infocse": {
        "batch_size": 64, "lr": 7e-6, "epochs": 2, "mask": 0.4, "mlm_weight": 1e-5, "tau": 0.05,
        "max_length": 32, "eval_every": 125, "head": "bn",
    },
    "mixcse": {
        "batch_size": 64, "lr": 3e-5, "epochs": 1, "max_length": 32, "eval_every": 125, "tau": 0.05,
        "mix": 0.2, "mixed": "released",
    },
    "iscse": {
        "tau": 0.05, "max_length": 32, "epochs": 1, "eval_every": 125, "buffer": 1024, "neighbours": 16,
        "grouping": "knn", "aggregation": "attention", "attention_tau": 2.0, "alpha": 0.1,
        "alpha_schedule": "constant",
    },
    "pcl": {"lr": 3e-5, "batch_size": 256, "rounds": 2, "tau": 0.05, "epochs": 1},
    "promptbert": {
        "batch_size": 256, "lr": 1e-5, "epochs": 1, "max_length": 32, "tau": 0.05, "eval_every": 125,
        "denoising": True, "dev_vectors": "denoised", "noise_positions": "released",
    },
    "rankcse": {
        "batch_size": 128, "lr": 3e-5, "epochs": 1, "tau": 0.05, "teacher_tau": 0.05, "rank_loss": "listmle",
        "alpha": 0.33, "beta": 1.0, "gamma": 1.0, "teacher1": "diffcse", "teacher2": "simcse",
        "eval_every": 125, "max_length": 32, "dropout": 0.1, "consistency": "neg_entropy",
    },
    "sncse": {
        "batch_size": 256, "lr": 1e-5, "epochs": 1, "max_length": 32, "tau": 0.05, "eval_every": 125,
        "alpha": 0.1, "beta": 0.3, "negate_unfinished": False,
    },
    "sup_simcse": {
        "lr": 5e-5, "batch_size": 512, "epochs": 3, "tau": 0.05, "hard_negative_weight": 0.0,
        "max_length": 32, "eval_every": 125, "pooling": "pooler",
    },
    "vascl": {
        "lr": 5e-6, "head_rate": 100.0, "batch_size": 1024, "epochs": 5, "steps": 0, "max_length": 32,
        "tau": 0.05, "neighbours": 16, "radius": 15.0, "xi": 0.0, "power_steps": 1, "features": 128,
        "schedule": "constant", "clip": 0.0, "weight_decay": 0.0, "eval_every": 500, "pooling": "avg",
        "perturbed_gradient": "head",
    },
    "whitenedcse": {"lr": 1e-5, "batch_size": 128, "groups": 128, "views": 3, "epochs": 1, "tau": 0.05},
}  # fmt: skip
"""The same in all profiles that are listed below; "" is the card's default."""
PROFILES: list[tuple[str, str, dict[str, OptionValue]]] = [
    ("arccse", "bert-base", {"lr": 3e-5, "batch_size": 64, "epochs": 1}),
    ("arccse", "roberta-base", {"lr": 1e-5, "batch_size": 512}),
    ("bsl", "bert-base", {}),
    ("bsl", "roberta-base", {}),
    ("dclr", "bert-base", {"phi": 0.9, "noise_times": 1.0}),
    ("dclr", "roberta-base", {"phi": 0.85, "noise_times": 2.5}),
    ("crop", "bert-base", {}),
    ("crop", "roberta-base", {}),
    ("denosent", "bert-base", {"rtt": "d"}),  # by Chinese
    ("denosent", "roberta-base", {"rtt": "b"}),  # likewise
    ("diffcse", "bert-base", {"lr": 7e-6, "mask": 0.3}),
    ("diffcse", "roberta-base", {"lr": 1e-5, "mask": 0.2}),
    ("edfse_d", "", {}),
    ("esimcse", "bert-base", {"lr": 3e-5, "repetition_rate": 0.32, "momentum_init": "random", "epochs": 1}),
    ("esimcse", "roberta-base", {"lr": 1e-5, "repetition_rate": 0.3, "momentum_init": "random"}),
    ("esimcse", "mini", {"momentum_init": "pretrained"}),
    ("esimcse", "minilm", {"momentum_init": "pretrained", "lr": 3e-5}),
    ("infocse", "", {}),
    ("mixcse", "bert-base", {}),
    ("mixcse", "roberta-base", {}),
    ("iscse", "bert-base", {"lr": 3e-5, "batch_size": 64}),
    ("iscse", "roberta-base", {"lr": 1e-5, "batch_size": 512}),
    ("pcl", "bert-base", {}),
    ("pcl", "roberta-base", {}),
    ("promptbert", "bert-base", {}),
    ("promptbert", "roberta-base", {}),
    ("rankcse", "", {}),
    ("sncse", "", {"bml_weight": 1e-3}),
    ("sncse", "bert-base", {}),
    ("sncse", "roberta-base", {}),
    ("sup_simcse", "bert-base", {}),
    ("sup_simcse", "roberta-base", {}),
    ("vascl", "bert-base", {}),
    ("vascl", "roberta-base", {}),
    ("whitenedcse", "bert-base", {}),
    ("whitenedcse", "roberta-base", {}),
]


@pytest.mark.parametrize(("method", "profile", "own"), PROFILES)
def test_settings_are_the_released_ones(method: str, profile: str, own: dict[str, OptionValue]) -> None:
    card = discover().get(method).card
    defaults = {option.name: option.default for option in card.options}
    given = profile_options(card, profiles.load_profile(profile)) if profile else defaults
    expected = SETTINGS[method] | own
    assert {name: given[name] for name in expected} == expected
