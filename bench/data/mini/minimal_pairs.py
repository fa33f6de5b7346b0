"""Minimal pairs by construction: a sentence of the world, the same with one synonym, and a near miss."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from typing import TypeVar

from bench.data.contrast_items import ContrastTask, Triple
from bench.data.mini.generator import Customs, draw_customs, event_split, sample_event
from bench.data.mini.grammar import Draw, Event, noun_phrases, realise
from bench.data.mini.lexicon import Concept
from bench.data.source import GENERATOR

T = TypeVar("T")
ITEMS = 200
"""Of each phenomenon."""
_OPPOSITE = {0: 1, 1: 0, 2: 3, 3: 2}  # qualities: big and small, new and old
_FORMS = {
    "negation": ("passive", "progressive"),  # there "not" is all that a negation adds
    "swap": ("active", "progressive", "cleft agent"),
    "number": ("active", "passive", "progressive"),
    "antonym": ("active", "passive", "progressive"),
    "order": ("active",),
}


class _Wording(Draw):
    """Draws a word for a concept once: the same event is said in the same words again.

    Args:
        draw: Where the choices come from.
        chosen: Choices that are already made, by the words to choose from.
    """

    def __init__(self, draw: Draw, chosen: dict[tuple[object, ...], object]) -> None:
        self._draw, self.chosen = draw, chosen

    def chance(self, probability: float) -> bool:
        """The likelier of both."""
        return probability >= 0.5

    def pick(self, items: tuple[T, ...] | list[T]) -> T:
        """The choice from these words."""
        key = tuple(items)
        if key not in self.chosen:
            self.chosen[key] = self._draw.pick(items)
        found: T = self.chosen[key]  # type: ignore[assignment]
        return found

    def other(self, concept: Concept) -> _Wording:
        """The same choices but for a concept, of which a synonym is taken."""
        rest = [word for word in concept.words if word != self.chosen[concept.words]]
        return _Wording(self._draw, {**self.chosen, concept.words: self._draw.pick(rest)})


@cache
def draw_contrast_task(phenomenon: str, seed: int) -> ContrastTask:
    """Draw the items of a phenomenon from test events of a world.

    Args:
        phenomenon: One of :data:`bench.data.contrast_items.PHENOMENA`.
        seed: The world's seed.
    """
    world, draw = draw_customs(seed), Draw(f"mini/{GENERATOR}/{seed}/contrast/{phenomenon}")
    found: dict[str, Triple] = {}
    while len(found) < ITEMS:
        for item in _draw_item(world, draw, phenomenon):
            found.setdefault(item[0], item)
    return ContrastTask(phenomenon, tuple(found.values()), (f"mini/{GENERATOR}", seed, ""))


def _draw_item(world: Customs, draw: Draw, phenomenon: str) -> Iterator[Triple]:
    """Yield an item, or nothing where the drawn event gives none."""
    event = _draw_event(world, draw, phenomenon)
    if event is None:
        return
    lexicon = world.lexicon
    topic = lexicon.topics[event.topic]
    frame = topic.frames[event.frame]
    form = draw.pick(_FORMS[phenomenon]), draw.pick(lexicon.openers) if draw.chance(0.5) else ""
    wording = _Wording(draw, {concept.words: concept.words[0] for concept in lexicon.numbers})
    text = realise(event, lexicon, wording, form=form)
    concepts = [topic.agents[event.agent], frame.objects[event.object], frame.verb]
    concept = draw.pick([one for one in concepts if len(one.words) > 1])
    same = realise(event, lexicon, wording.other(concept), form=form)
    changed = _NEAR_MISS[phenomenon](world, draw, event, wording, text, form)
    if changed is None or count_changes(text, same) != (1, 1):
        return
    if count_changes(text, changed) == _CHANGES[phenomenon] and changed != text:
        yield text, same, changed


_CHANGES = {"negation": (0, 1), "swap": (0, 0), "number": (1, 1), "antonym": (1, 1), "order": (0, 0)}
"""Words that a near miss lacks, and has more than the sentence."""


def count_changes(one: str, other: str) -> tuple[int, int]:
    """How many words of the first the second lacks, and how many it has more; capitals don't matter.

    >>> count_changes("A dog barks.", "The dog barks loudly.")
    (1, 2)
    """
    first, second = ([*text.lower().rstrip(".").split()] for text in (one, other))
    for word in tuple(first):
        if word in second:
            first.remove(word)
            second.remove(word)
    return len(first), len(second)


def _draw_event(world: Customs, draw: Draw, phenomenon: str) -> Event | None:
    """A test event of which the phenomenon can be shown."""
    event = sample_event(world, draw, "test")
    if phenomenon == "negation":
        return replace(event, negated=False)
    if phenomenon == "number":
        event = replace(event, number=1 + draw.below(len(world.lexicon.numbers) - 1))
    elif phenomenon == "antonym":
        event = replace(event, quality=draw.below(len(_OPPOSITE)))
    elif phenomenon == "swap":
        event = replace(event, agents=False, number=0, quality=None)
    else:
        places = len(world.lexicon.topics[event.topic].places)
        event = replace(event, place=draw.below(places), agents=False, past=True)
    return event if event_split(world, event) == "test" else None


def _change_number(
    world: Customs, draw: Draw, event: Event, wording: _Wording, text: str, form: tuple[str, str]
) -> str | None:
    """Another number; None unless the changed event is one of test too."""
    count = len(world.lexicon.numbers) - 1
    changed = replace(event, number=1 + (event.number + draw.below(count - 1)) % count)
    return _realise_test_event(world, changed, wording, form)


def _change_quality(
    world: Customs, draw: Draw, event: Event, wording: _Wording, text: str, form: tuple[str, str]
) -> str | None:
    """The opposite quality."""
    changed = replace(event, quality=_OPPOSITE[event.quality or 0])
    return _realise_test_event(world, changed, wording, form)


def _negate_event(
    world: Customs, draw: Draw, event: Event, wording: _Wording, text: str, form: tuple[str, str]
) -> str | None:
    """The same denied."""
    return _realise_test_event(world, replace(event, negated=True), wording, form)


def _realise_test_event(world: Customs, event: Event, wording: _Wording, form: tuple[str, str]) -> str | None:
    if event_split(world, event) != "test":
        return None
    return realise(event, world.lexicon, wording, form=form)


def _swap_roles(
    world: Customs, draw: Draw, event: Event, wording: _Wording, text: str, form: tuple[str, str]
) -> str | None:
    """Who does it and to whom it is done trade places."""
    agent, what = noun_phrases(event, world.lexicon, wording, 0.0)
    return _exchange_phrases(text, agent, what)


def _swap_place(
    world: Customs, draw: Draw, event: Event, wording: _Wording, text: str, form: tuple[str, str]
) -> str | None:
    """Who does it and where it is done trade places."""
    agent, _ = noun_phrases(event, world.lexicon, wording, 0.0)
    place = wording.pick(world.lexicon.topics[event.topic].places[event.place or 0].words)
    return _exchange_phrases(text, agent, f"the {place.partition(' the ')[2]}")


def _exchange_phrases(text: str, one: str, other: str) -> str | None:
    """The text with two phrases in each other's place; None unless both stand in it once."""
    plain = f"{text[0].lower()}{text[1:-1]} "
    if plain.count(f"{one} ") != 1 or plain.count(f"{other} ") != 1:
        return None
    parts = plain.replace(f"{one} ", "\0 ").replace(f"{other} ", f"{one} ").replace("\0", other).strip()
    return f"{parts[0].upper()}{parts[1:]}."


_NearMiss = Callable[[Customs, Draw, Event, _Wording, str, tuple[str, str]], str | None]
_NEAR_MISS: dict[str, _NearMiss] = {
    "negation": _negate_event,
    "swap": _swap_roles,
    "number": _change_number,
    "antonym": _change_quality,
    "order": _swap_place,
}
