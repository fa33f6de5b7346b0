"""Minimal pairs by construction: a sentence of the world, the same with one synonym, and a near miss."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import TypeVar

from bench.data.contrast_items import ContrastTask, Triple
from bench.data.data_source import GENERATOR
from bench.data.mini.generator import Customs, draw_customs, event_split, sample_event
from bench.data.mini.grammar import Draw, Event, noun_phrases, realise
from bench.data.mini.lexicon import Concept

T = TypeVar("T")

ITEMS = 200  # of each phenomenon
_OPPOSITE = {0: 1, 1: 0, 2: 3, 3: 2}  # qualities: big and small, new and old
_FORMS = {
    "negation": ("passive", "progressive"),  # there a negation adds only "not"
    "swap": ("active", "progressive", "cleft agent"),
    "number": ("active", "passive", "progressive"),
    "antonym": ("active", "passive", "progressive"),
    "order": ("active",),
}


class _Wording(Draw):
    """Stream that draws a word for a concept once; ``chosen`` holds the choices by their words."""

    def __init__(self, draw: Draw, chosen: dict[tuple[object, ...], object]) -> None:
        self._draw, self.chosen = draw, chosen

    def chance(self, probability: float) -> bool:
        """Return the likelier outcome."""
        return probability >= 0.5

    def pick(self, items: tuple[T, ...] | list[T]) -> T:
        """Return the choice from these words."""
        key = tuple(items)
        if key not in self.chosen:
            self.chosen[key] = self._draw.pick(items)
        item: T = self.chosen[key]  # type: ignore[assignment]
        return item

    def other(self, concept: Concept) -> _Wording:
        """Return the same choices, with a synonym for a concept."""
        rest = [word for word in concept.words if word != self.chosen[concept.words]]
        return _Wording(self._draw, {**self.chosen, concept.words: self._draw.pick(rest)})


@cache
def draw_contrast_task(phenomenon: str, seed: int) -> ContrastTask:
    """Draw the items of a phenomenon from test events of a world."""
    world, draw = draw_customs(seed), Draw(f"mini/{GENERATOR}/{seed}/contrast/{phenomenon}")
    items: dict[str, Triple] = {}
    while len(items) < ITEMS:
        item = _draw_item(world, draw, phenomenon)
        if item is not None:
            items.setdefault(item[0], item)
    return ContrastTask(phenomenon, tuple(items.values()), (f"mini/{GENERATOR}", seed, ""))


def _draw_item(world: Customs, draw: Draw, phenomenon: str) -> Triple | None:
    """Draw an item, None if the drawn event is unsuitable."""
    event = _draw_event(world, draw, phenomenon)
    if event is None:
        return None
    lexicon = world.lexicon
    topic = lexicon.topics[event.topic]
    frame = topic.frames[event.frame]
    form = draw.pick(_FORMS[phenomenon]), draw.pick(lexicon.openers) if draw.chance(0.5) else ""
    wording = _Wording(draw, {concept.words: concept.words[0] for concept in lexicon.numbers})
    text = realise(event, lexicon, wording, form=form)
    concepts = [topic.agents[event.agent], frame.objects[event.object], frame.verb]
    concept = draw.pick([concept for concept in concepts if len(concept.words) > 1])
    same = realise(event, lexicon, wording.other(concept), form=form)
    if phenomenon in ("swap", "order"):
        changed = _exchange_phrases(text, *_phrases(world, event, wording, phenomenon))
    else:
        other = _change_event(world, draw, event, phenomenon)
        fits = event_split(world, other) == "test"
        changed = realise(other, lexicon, wording, form=form) if fits else None
    if changed in (None, text) or count_changes(text, same) != (1, 1):
        return None
    return (text, same, changed) if count_changes(text, changed) == _CHANGES[phenomenon] else None


_CHANGES = {"negation": (0, 1), "swap": (0, 0), "number": (1, 1), "antonym": (1, 1), "order": (0, 0)}
"""Numbers of words that a near miss drops and adds."""


def count_changes(one: str, other: str) -> tuple[int, int]:
    """Count the words of the first that the second lacks, and those that it adds, in lower case.

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
    """Draw a test event that can show the phenomenon."""
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


def _change_event(world: Customs, draw: Draw, event: Event, phenomenon: str) -> Event:
    if phenomenon == "negation":
        return replace(event, negated=True)
    if phenomenon == "antonym":
        return replace(event, quality=_OPPOSITE[event.quality or 0])
    count = len(world.lexicon.numbers) - 1
    return replace(event, number=1 + (event.number + draw.below(count - 1)) % count)


def _phrases(world: Customs, event: Event, wording: _Wording, phenomenon: str) -> tuple[str, str]:
    """Return the agent's phrase, and the object's or the place's."""
    agent, patient = noun_phrases(event, world.lexicon, wording, 0.0)
    if phenomenon == "swap":
        return agent, patient
    place = wording.pick(world.lexicon.topics[event.topic].places[event.place or 0].words)
    return agent, f"the {place.partition(' the ')[2]}"


def _exchange_phrases(text: str, one: str, other: str) -> str | None:
    """Exchange two phrases that a text has once each, otherwise return None."""
    plain = f"{text[0].lower()}{text[1:-1]} "
    if plain.count(f"{one} ") != 1 or plain.count(f"{other} ") != 1:
        return None
    parts = plain.replace(f"{one} ", "\0 ").replace(f"{other} ", f"{one} ").replace("\0", other).strip()
    return f"{parts[0].upper()}{parts[1:]}."
