"""The embedded suite ``toy``: 180 pairs graded by construction, for smoke tests only."""

from __future__ import annotations

from bench.data.tasks import PairSubset, PairTask

_WHO = ("the old man", "a young woman", "the doctor", "two children", "our teacher", "the farmer")
_DOES = (
    ("is buying a car", "is purchasing an automobile"),
    ("is fixing the roof", "is repairing the top of the house"),
    ("is cooking dinner", "is preparing the evening meal"),
    ("is reading a book", "is looking through a novel"),
    ("is singing a song", "is performing some music"),
    ("is painting the fence", "is putting colour on the wooden fence"),
)
_WHERE = ("in the city", "near the river", "at the station", "behind the school", "on the hill")
_OTHER_TOPIC = "The stock market fell sharply after the central bank spoke"


def make_toy_task() -> PairTask:
    """Return the task: 30 sentences, each with a partner of grades 5, 4, 3, 2, 1 and 0."""
    rows: list[tuple[str, str, float]] = []
    for i, place in enumerate(_WHERE):
        for j, (action, paraphrase) in enumerate(_DOES):
            who = _WHO[(i + j) % len(_WHO)]
            other = _WHO[(i + j + 1) % len(_WHO)]
            elsewhere = _WHERE[(i + 1) % len(_WHERE)]
            different, _ = _DOES[(j + 1) % len(_DOES)]
            anchor = _make_sentence(who, action, place)
            rows += [
                (anchor, _make_sentence(who, paraphrase, place), 5.0),
                (anchor, _make_sentence(who, paraphrase, elsewhere), 4.0),
                (anchor, _make_sentence(other, action, elsewhere), 3.0),
                (anchor, _make_sentence(other, different, place), 2.0),
                (anchor, _make_sentence(other, different, elsewhere), 1.0),
                (anchor, f"{_OTHER_TOPIC} in week {i * len(_DOES) + j + 1}.", 0.0),
            ]
    first, second, gold = zip(*rows, strict=True)
    return PairTask("TOY", (PairSubset("toy", first, second, gold),))


def _make_sentence(who: str, action: str, where: str) -> str:
    if who.startswith("two "):
        action = "are" + action.removeprefix("is")
    return f"{who[0].upper()}{who[1:]} {action} {where}."
