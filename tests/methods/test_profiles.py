"""The published settings of every method, and options that a loss reads."""

from __future__ import annotations

import hashlib
import json

import pytest

from bench.config.profiles import load_profile
from bench.plan.cell_expansion import profile_options
from bench.registry import own_methods
from bench.training.encoder_options import ENCODER_OPTIONS
from tests.support.paradigm import NAMES

# Digest of a method's options in these profiles, the released ones: a change of one is a new version of its
# results. The failing test prints the options.
PROFILES = ("bert-base", "roberta-base", "mini", "minilm")
SETTINGS = {
    "angle": "e5dde56a", "arccon": "76c5264e", "arccse": "2be589dd", "barlow": "dfcf13e4",
    "bert_flow": "9dad2f0f", "bsl": "cf443fba", "consert": "6b29915f", "crop": "38d60d2d", "ct": "10b053bf",
    "ct_batch": "632aebc8", "dclr": "535ff463", "denosent": "238d48d6",
    "diffcse": "6c3b4a8a", "distill": "7d1637d5", "echo": "ea689fb1", "edfse": "7269ea61",
    "edfse_d": "5af26fd1", "ensemble": "1359cfcd", "esimcse": "7aac7590", "exported": "fdbd5ad3",
    "hf": "2584045b", "infocse": "8d0c812d", "infonce": "13c0140f", "isbert": "a095dfaf", "iscse": "e7f64888",
    "jtcse": "c398f7af", "jtcse_d": "27e22993", "jtcse_uc": "e05fc21a", "jtcse_uc_d": "e5e03f1c",
    "llm2vec": "eaf36a5e",
    "m_barlow": "1879cd0d", "m_mhe": "a42abf9c", "m_mhs": "6078ab69", "m_vicreg": "1879cd0d",
    "mat": "5b68d871", "met": "eb11b93a", "mhe": "205174cf", "mhs": "cbf9090b", "mirror_bert": "954fa251",
    "mixcse": "a4a1864f", "mpt": "8475129b", "paradigm": "4e860e8e", "pcl": "0f8674e3",
    "promcse": "29acc307", "promptbert": "2cc162e0", "prompteol": "433e2840", "prompteol_cse": "42bf9abe",
    "rankcse": "e3fa5724", "released": "dbba0720", "scd": "c2ff4617", "simcse": "11bc0977",
    "sncse": "1153e39f", "st": "fdbd5ad3", "static": "f7a58873", "sup_prompteol_cse": "00bb6664",
    "sup_simcse": "86d6111e", "tncse": "5526a26f", "tncse_d": "27e22993", "tncse_single": "d0acf494",
    "tncse_uc": "82cb6b3e", "tncse_uc_d": "5742e75c", "tsdae": "26dcb69d", "unsee_barlow": "63059845",
    "unsee_byol": "12e32428",
    "unsee_corinfomax": "63059845", "unsee_vicreg": "12e32428", "untrained": "1c1b62b7",
    "vascl": "d914e794", "vectors": "247b77d0", "vicreg": "dfcf13e4", "whitenedcse": "b323802c",
    "whitening": "c185919f", "word_overlap": "fdbd5ad3",
}  # fmt: skip

UNTOUCHED = {(option.name, option.default) for option in ENCODER_OPTIONS}


@pytest.mark.parametrize("name", SETTINGS)
def test_settings_are_the_published_ones(name: str) -> None:
    card = own_methods()[name].card
    settings = {}
    for profile in PROFILES:
        options = profile_options(card, load_profile(profile))
        settings[profile] = dict(options.items() - UNTOUCHED)
    text = json.dumps(settings, sort_keys=True)
    assert hashlib.sha256(text.encode()).hexdigest()[:8] == SETTINGS[name], text


def test_a_loss_has_no_option_that_it_does_not_read() -> None:
    """An unmodified loss has no steps, and MHS's weights need no temperature."""
    for name in NAMES:
        options = {option.name for option in own_methods()[name].card.options}
        if name in ("mhe", "mhs", "barlow", "vicreg"):
            assert not {"gd", "w", "r", "m", "tau", "ratio"} & options
        assert (name == "m_mhs") == ("factor" in options)
        assert name != "m_mhs" or "tau" not in options
