"""Grammar of the mini world: words, number, tense, negation and word order of an event's sentence."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from random import Random
from typing import TypeVar

from bench.data.mini.lexicon import Concept, Lexicon

T = TypeVar("T")
ORDERS = (
    *("active", "time first", "place first", "passive", "progressive"),
    *("cleft agent", "cleft object", "nominal"),
)
_OPENED = 0.6  # share of sentences that begin with filler words


@dataclass(frozen=True)
class Event:
    """The meaning of a sentence. Indices point into the lexicon; None leaves a part out."""

    topic: int
    agent: int  # of the topic
    agents: bool  # more than one
    frame: int  # action of the topic
    object: int  # of the frame
    number: int  # 0 for one
    quality: int | None  # of the object
    place: int | None  # of the topic
    time: int | None
    past: bool
    negated: bool


class Draw:
    """Draws from the one stream of floats that Python promises to keep."""

    def __init__(self, seed: int | str) -> None:
        digest = hashlib.sha256(str(seed).encode()).digest()
        self._random = Random(int.from_bytes(digest[:8], "big"))  # noqa: S311 - no secret

    def chance(self, probability: float) -> bool:
        """Return True with this probability."""
        return self._random.random() < probability

    def below(self, count: int) -> int:
        """Draw a whole number from 0 to count - 1."""
        return int(self._random.random() * count)

    def pick(self, items: tuple[T, ...] | list[T]) -> T:
        """Draw one item, all with equal probability."""
        return items[self.below(len(items))]

    def weighted(self, weights: tuple[float, ...]) -> int:
        """Draw an index by its weight (they add to 1)."""
        rest = self._random.random()
        for index, weight in enumerate(weights):
            rest -= weight
            if rest < 0:
                return index
        return len(weights) - 1


def realise(
    event: Event, lexicon: Lexicon, draw: Draw, *, form: tuple[str, str] | None = None, general: float = 0.0
) -> str:
    """Draw a sentence for an event.

    ``form`` is one of ORDERS, and filler words at the begin ("" for none). ``general`` is the probability of
    the more general word for the agent and for the object.
    """
    topic = lexicon.topics[event.topic]
    frame = topic.frames[event.frame]
    agent, what = noun_phrases(event, lexicon, draw, general)
    verb = draw.pick(frame.verb.words)
    order, opener = form or (draw.pick(ORDERS), draw.pick(lexicon.openers) if draw.chance(_OPENED) else "")
    where = [draw.pick(topic.places[event.place].words)] if event.place is not None else []
    when = [draw.pick(lexicon.times[event.time].words)] if event.time is not None else []
    if order == "time first" and when:
        clause = [*when, agent, _active_verb(event, lexicon, verb), what, *where]
    elif order == "place first" and where:
        clause = [*where, agent, _active_verb(event, lexicon, verb), what, *when]
    else:
        head = _build_clause(order, event, lexicon, verb, agent, what)
        clause = [*head, *(where + when if draw.chance(0.7) else when + where)]
    text = " ".join([opener, *clause] if opener else clause)
    return f"{text[0].upper()}{text[1:]}."


def noun_phrases(event: Event, lexicon: Lexicon, draw: Draw, general: float) -> tuple[str, str]:
    """Draw the noun phrases of agent and object."""
    topic = lexicon.topics[event.topic]
    noun = _draw_noun(topic.agents[event.agent], draw, general)
    agent = f"the {lexicon.plural(noun) if event.agents else noun}"
    noun = _draw_noun(topic.frames[event.frame].objects[event.object], draw, general)
    quality = f"{draw.pick(lexicon.qualities[event.quality].words)} " if event.quality is not None else ""
    number = draw.pick(lexicon.numbers[event.number].words)
    if event.number == 0 and draw.chance(0.6):
        number = "an" if (quality or noun)[0] in "aeiou" else "a"
    return agent, f"{number} {quality}{noun if event.number == 0 else lexicon.plural(noun)}"


def _draw_noun(concept: Concept, draw: Draw, general: float) -> str:
    return concept.general if concept.general and draw.chance(general) else draw.pick(concept.words)


def _build_clause(order: str, event: Event, lexicon: Lexicon, verb: str, agent: str, what: str) -> list[str]:
    negation = " not" if event.negated else ""
    was = "was" if event.past else "is"
    if order == "passive":
        be = _form_of_be(event.past, event.number > 0)
        return [what, be + negation, lexicon.participle(verb), "by", agent]
    if order == "progressive":
        be = _form_of_be(event.past, event.agents)
        return [agent, be + negation, lexicon.gerund(verb), what]
    if order == "cleft agent":
        return ["it", was, agent, "who", _active_verb(event, lexicon, verb), what]
    if order == "cleft object":
        return ["it", was, what, "that", agent, _active_verb(event, lexicon, verb)]
    if order == "nominal":
        forms = ("takes place", "does not take place"), ("took place", "did not take place")
        return ["the", lexicon.gerund(verb), "of", what, "by", agent, forms[event.past][event.negated]]
    return [agent, _active_verb(event, lexicon, verb), what]


def _active_verb(event: Event, lexicon: Lexicon, verb: str) -> str:
    base = verb.replace("_", " ")
    if event.past:
        return f"did not {base}" if event.negated else lexicon.preterite(verb)
    if event.negated:
        return f"{'do' if event.agents else 'does'} not {base}"
    return base if event.agents else lexicon.third(verb)


def _form_of_be(past: bool, plural: bool) -> str:
    if past:
        return "were" if plural else "was"
    return "are" if plural else "is"
