"""Generator of a world's texts: events, sentences and graded pairs, all determined by the world's seed."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import cache
from operator import attrgetter

from bench.data.data_source import COPIES, FURTHER_COPIES, GENERATOR, SPLIT
from bench.data.mini.grammar import Draw, Event, realise
from bench.data.mini.lexicon import Lexicon, Topic, load_lexicon

TRAINING_SENTENCES = 24_000
TRIPLETS = 6_000
PAIRS = {"dev": 900, "test": 1800}

_TEMPLATES = (
    'This sentence of "{sentence}" means {subject}.',
    'This sentence : "{sentence}" means {subject}.',
    "The sentence : '{sentence}' means {subject}.",
    'The {reporter} {says} : "{sentence}"',
)
_GENERAL = 0.08  # share of more general words in running text
_FRAMED = 0.06  # share of sentences inside a quotation or a prompt
_CANDIDATES = 24  # wordings of a pair's second sentence, of which the word overlap selects one
_WIDEST = 0.7  # largest target overlap


@dataclass(frozen=True, eq=False)  # one object a seed
class Customs:
    """Actions and places that the agents of a world prefer: the source of their words' meaning."""

    seed: int
    lexicon: Lexicon
    actions: tuple[tuple[tuple[float, ...], ...], ...]
    places: tuple[tuple[tuple[float, ...], ...], ...]


@cache
def draw_customs(seed: int) -> Customs:
    """Draw the customs of the world of this seed."""
    lexicon = load_lexicon()
    draw = Draw(f"mini/{GENERATOR}/{seed}/preferences")
    actions = tuple(_draw_preferences(draw, topic, len(topic.frames), 2, 0.8) for topic in lexicon.topics)
    places = tuple(_draw_preferences(draw, topic, len(topic.places), 1, 0.7) for topic in lexicon.topics)
    return Customs(seed, lexicon, actions, places)


def _draw_preferences(
    draw: Draw, topic: Topic, count: int, preferred: int, share: float
) -> tuple[tuple[float, ...], ...]:
    """Draw weights for every agent of a topic: ``preferred`` choices get ``share`` of the weight more."""
    weights = []
    for _ in topic.agents:
        chosen: set[int] = set()
        while len(chosen) < preferred:
            chosen.add(draw.below(count))
        extra = [share / preferred if i in chosen else 0.0 for i in range(count)]
        weights.append(tuple((1 - share) / count + more for more in extra))
    return tuple(weights)


_event_parts = attrgetter(*(field.name for field in fields(Event)[:-2]))  # all but past and negated


def event_split(world: Customs, event: Event) -> str:
    """Return train (8 of 10), dev or test: by a hash of who does what to how many, where and when."""
    return _split_by_hash(world, _event_parts(event))


def _split_by_hash(world: Customs, parts: tuple[int | None, ...]) -> str:
    identity = f"{SPLIT}/{world.seed}/{(*parts, True, False)}"  # the same for all tenses and negations
    bucket = hashlib.sha256(identity.encode()).digest()[0] % 10
    return {8: "dev", 9: "test"}.get(bucket, "train")


def sample_event(world: Customs, draw: Draw, split: str, topic: int | None = None) -> Event:
    """Draw an event of a split."""
    lexicon = world.lexicon
    while True:
        t = draw.below(len(lexicon.topics)) if topic is None else topic
        words = lexicon.topics[t]
        agent = draw.below(len(words.agents))
        frame = draw.weighted(world.actions[t][agent])
        parts = (
            t,
            agent,
            draw.chance(0.2),
            frame,
            draw.below(len(words.frames[frame].objects)),
            0 if draw.chance(0.5) else draw.below(len(lexicon.numbers)),
            draw.below(len(lexicon.qualities)) if draw.chance(0.1) else None,
            draw.weighted(world.places[t][agent]) if draw.chance(0.5) else None,
            draw.below(len(lexicon.times)) if draw.chance(0.35) else None,
        )
        past, negated = draw.chance(0.7), draw.chance(0.1)
        if _split_by_hash(world, parts) == split:
            return Event(*parts, past, negated)


@dataclass(frozen=True)
class _TrainingLine:
    """A line of the training text: the event, the frame around its sentence, its wordings so far."""

    event: Event
    frame: Callable[[str], str]
    texts: tuple[str, ...]

    def reworded(self, world: Customs, draw: Draw) -> _TrainingLine:
        """Add a new wording."""
        while True:
            text = self.frame(realise(self.event, world.lexicon, draw, general=_GENERAL))
            if text not in self.texts:
                return replace(self, texts=(*self.texts, text))


@cache
def _draw_lines(seed: int) -> tuple[_TrainingLine, ...]:
    """Draw every line with its first wordings, all different: the sentence and COPIES."""
    world, draw = draw_customs(seed), Draw(f"mini/{GENERATOR}/{seed}/training")
    rows: dict[str, _TrainingLine] = {}
    while len(rows) < TRAINING_SENTENCES:
        event = sample_event(world, draw, "train")
        frame = _draw_frame(world, draw, event)
        texts = tuple(
            frame(realise(event, world.lexicon, draw, general=_GENERAL)) for _ in range(1 + len(COPIES))
        )
        if len(set(texts)) == len(texts):
            rows.setdefault(texts[0], _TrainingLine(event, frame, texts))
    return tuple(rows.values())


def draw_training_rows(seed: int) -> list[tuple[str, ...]]:
    """Draw (sentence, copy a, copy b) of TRAINING_SENTENCES train events; the sentences are distinct."""
    return [line.texts for line in _draw_lines(seed)]


@cache
def draw_copy_rows(seed: int) -> list[tuple[str, ...]]:
    """Draw the same rows with FURTHER_COPIES; all wordings of a line differ."""
    lines = list(_draw_lines(seed))
    for copy in FURTHER_COPIES:
        draw = Draw(f"mini/{GENERATOR}/{seed}/training/{copy}")
        lines = [line.reworded(draw_customs(seed), draw) for line in lines]
    return [line.texts for line in lines]


def _draw_frame(world: Customs, draw: Draw, event: Event) -> Callable[[str], str]:
    """Draw the frame of a sentence: mostly none, otherwise a speaker or a prompt as PromptBERT's."""
    if not draw.chance(_FRAMED):
        return str
    template = draw.pick(_TEMPLATES)
    lexicon = world.lexicon
    subject = draw.pick(lexicon.topics[event.topic].subjects)
    reporter, says = draw.pick(lexicon.reporters), draw.pick(lexicon.sayings)
    return lambda text: template.format(sentence=text, subject=subject, reporter=reporter, says=says)


def draw_triplets(seed: int) -> list[tuple[str, str, str]]:
    """Draw distinct (sentence, rewording, contradiction as in grade 3) of TRIPLETS train events."""
    world, draw = draw_customs(seed), Draw(f"mini/{GENERATOR}/{seed}/triplets")
    rows: dict[str, tuple[str, str, str]] = {}
    while len(rows) < TRIPLETS:
        event = sample_event(world, draw, "train")
        if (other := draw_partner(world, draw, "train", event, 3)) is None:
            continue
        events = (event, event, other[0])
        first, positive, negative = (realise(e, world.lexicon, draw, general=_GENERAL) for e in events)
        if len({first, positive, negative}) == 3:
            rows.setdefault(first, (first, positive, negative))
    return list(rows.values())


def draw_pairs(seed: int, split: str) -> list[tuple[str, str, float]]:
    """Draw the (first sentence, second sentence, grade) rows of ``dev`` or ``test``, as many of each grade.

    5 the same in other words; 4 another number or time, or a more general word; 3 another agent or place, or
    negated; 2 the same action with another agent and object; 1 the same topic; 0 another topic. A target
    overlap that is independent of the grade selects the second sentence's wording.
    """
    world, draw = draw_customs(seed), Draw(f"mini/{GENERATOR}/{seed}/pairs/{split}")
    rows: dict[tuple[str, str], float] = {}
    while len(rows) < PAIRS[split]:
        grade = len(rows) % 6
        event = sample_event(world, draw, split)
        if (other := draw_partner(world, draw, split, event, grade)) is None:
            continue
        changed, general = other
        first = realise(event, world.lexicon, draw)
        target = _WIDEST * draw.below(1000) / 1000
        wordings = [realise(changed, world.lexicon, draw, general=general) for _ in range(_CANDIDATES)]
        second = min(wordings, key=lambda text: abs(word_cosine(first, text) - target))
        if first != second:
            rows[first, second] = float(grade)
    return [(first, second, grade) for (first, second), grade in rows.items()]


def word_cosine(first: str, second: str) -> float:
    """Return the cosine of the two sentences' sets of blank-separated words, within [0, 1]."""
    a, b = (set(text.lower().rstrip(".").split()) for text in (first, second))
    return float(len(a & b) / (len(a) * len(b)) ** 0.5)


def draw_partner(
    world: Customs, draw: Draw, split: str, event: Event, grade: int
) -> tuple[Event, float] | None:
    """Draw an event with a likeness of this grade, and the share of more general words."""
    for _ in range(50):
        changed, general = _change_event(world, draw, split, event, grade)
        if changed is not None and event_split(world, changed) == split and (changed != event or grade >= 4):
            return changed, general
    return None


def _change_event(
    world: Customs, draw: Draw, split: str, event: Event, grade: int
) -> tuple[Event | None, float]:
    if grade == 5:
        return event, 0.0
    if grade == 4:
        return _minor_change(world, draw, event)
    if grade == 3:
        return _major_change(world, draw, event), 0.0
    if grade == 2:
        return _same_action(world, draw, split, event), 0.0
    topic = event.topic if grade == 1 else _draw_other(draw, len(world.lexicon.topics), event.topic)
    new = sample_event(world, draw, split, topic)
    alike = grade == 1 and (new.frame == event.frame or new.agent == event.agent)
    return None if alike else new, 0.0


def _minor_change(world: Customs, draw: Draw, event: Event) -> tuple[Event | None, float]:
    """Change number or time, or take more general words."""
    lexicon = world.lexicon
    kind = draw.pick(("number", "time", "general"))
    if kind == "number":
        return replace(event, number=_draw_other(draw, len(lexicon.numbers), event.number)), 0.0
    if kind == "time" and event.time is not None:
        return replace(event, time=_draw_other(draw, len(lexicon.times), event.time)), 0.0
    return (event, 1.0) if kind == "general" else (None, 0.0)


def _major_change(world: Customs, draw: Draw, event: Event) -> Event | None:
    """Change agent or place, or negate."""
    topic = world.lexicon.topics[event.topic]
    kind = draw.pick(("agent", "place", "negation"))
    if kind == "agent":
        return replace(event, agent=_draw_other(draw, len(topic.agents), event.agent))
    if kind == "place" and event.place is not None:
        return replace(event, place=_draw_other(draw, len(topic.places), event.place))
    return replace(event, negated=not event.negated) if kind == "negation" else None


def _same_action(world: Customs, draw: Draw, split: str, event: Event) -> Event | None:
    """Keep the action, change agent and object, and draw the rest again."""
    topic = world.lexicon.topics[event.topic]
    objects = len(topic.frames[event.frame].objects)
    if objects < 2:
        return None
    return replace(
        sample_event(world, draw, split, event.topic),
        frame=event.frame,
        agent=_draw_other(draw, len(topic.agents), event.agent),
        object=_draw_other(draw, objects, event.object),
    )


def _draw_other(draw: Draw, count: int, index: int) -> int:
    """Draw another index."""
    return (index + 1 + draw.below(count - 1)) % count
