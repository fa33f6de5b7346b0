"""Names of methods: as the papers print them, and shorter where there is no room for long ones."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count

from bench.errors import printable
from bench.registry import own_methods

_PUBLISHED = {
    "rankcse_uc": "RankCSE+UC",
    "rankcse_uc_d": "RankCSE+UC D",
    "bert_base": "BERT-base",
    "roberta_base": "RoBERTa-base",
    "bert_whitening": "BERT-whitening",
    "roberta_whitening": "RoBERTa-whitening",
    "empirical_baseline": "Empirical baseline",
}
"""Names of published tables that no method has, and how these print them."""


def printed_name(name: str) -> str:
    """Return a method's name as papers print it; the name itself where no card says another.

    >>> printed_name("simcse"), printed_name("bert_base"), printed_name("mine")
    ('SimCSE', 'BERT-base', 'mine')
    """
    method = own_methods().get(name)
    return (method.card.printed if method else "") or _PUBLISHED.get(name, name)


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
