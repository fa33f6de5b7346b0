"""Names of methods: as the papers print them, and shorter where there is no room for long ones."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count

from bench.errors import printable

PRINTED = {
    "simcse": "SimCSE",
    "esimcse": "ESimCSE",
    "crop": "Cropping",
    "denosent": "DenoSent",
    "diffcse": "DiffCSE",
    "arccse": "ArcCSE",
    "infocse": "InfoCSE",
    "iscse": "IS-CSE",
    "promptbert": "PromptBERT",
    "sncse": "SNCSE",
    "vascl": "VaSCL",
    "whitenedcse": "WhitenedCSE",
    "sup_simcse": "Supervised SimCSE",
    "angle": "AnglE",
    "rankcse": "RankCSE",
    "mixcse": "MixCSE",
    "dclr": "DCLR",
    "rankcse_uc": "RankCSE+UC",
    "rankcse_uc_d": "RankCSE+UC D",
    "pcl": "PCL",
    "edfse": "EDFSE",
    "edfse_d": "EDFSE D",
    "bsl": "BSL",
    "tncse": "TNCSE",
    "tncse_d": "TNCSE D",
    "tncse_uc": "TNCSE+UC",
    "tncse_uc_d": "TNCSE+UC D",
    "jtcse": "JTCSE",
    "jtcse_d": "JTCSE D",
    "jtcse_uc": "JTCSE+UC",
    "jtcse_uc_d": "JTCSE+UC D",
    "unsee_byol": "UNSEE-BYOL",
    "unsee_barlow": "UNSEE-Barlow",
    "unsee_vicreg": "UNSEE-VICReg",
    "unsee_corinfomax": "UNSEE-CorInfoMax",
    "infonce": "InfoNCE",
    "arccon": "ArcCon",
    "mpt": "MPT",
    "met": "MET",
    "mhe": "MHE",
    "mhs": "MHS",
    "barlow": "Barlow Twins",
    "vicreg": "VICReg",
    "m_mhe": "mMHE",
    "m_mhs": "mMHS",
    "m_barlow": "mBarlow Twins",
    "m_vicreg": "mVICReg",
    "bert_base": "BERT-base",
    "roberta_base": "RoBERTa-base",
    "bert_whitening": "BERT-whitening",
    "roberta_whitening": "RoBERTa-whitening",
    "empirical_baseline": "Empirical baseline",
    "word_overlap": "Word overlap",
}
"""How papers print what their tables' names stand for."""


def shortened(names: Iterable[str], most: int) -> dict[str, str]:
    """Return what is shown for each name: long ones lose their middle, and no two become the same.

    Args:
        names: The names.
        most: Characters that have room.

    >>> found = shortened(["simcse", "a" * 50 + "b" * 50, "a" * 50 + "c" + "b" * 50], 80)
    >>> [(shown[:3], shown.count("a"), shown.count("b"), len(shown)) for shown in found.values()]
    [('sim', 0, 0, 6), ('aaa', 39, 38, 80), ('aaa', 37, 36, 80)]
    """
    shown = {name: printable(" ".join(name.split("\n"))) for name in names}
    long = {name: line for name, line in shown.items() if len(line) > most}
    taken = {line for name, line in shown.items() if name not in long}
    for name, line in long.items():
        cuts = (_cut(line, "..." if number == 1 else f"...{number}...", most) for number in count(1))
        shown[name] = next(cut for cut in cuts if cut not in taken)
        taken.add(shown[name])
    return shown


def _cut(line: str, middle: str, most: int) -> str:
    kept = most - len(middle)
    return line[: kept - kept // 2] + middle + line[-(kept // 2) :]
