"""The card of a method in sections, and what it would do in a profile."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from bench.cli.sections import Section, format_sections

if TYPE_CHECKING:
    from bench.method_card import MethodCard, Option
    from bench.plan.method_explanation import MethodExplanation


def format_card(card: MethodCard, width: int | None = None) -> Iterator[str]:
    """Yield the lines of a method's card; ``width``: characters of a line, None for whole lines.

    It begins with what the method adds to SimCSE. The summary is left out where that repeats it: it stands
    in the list of methods. A summary that shows the form of an entry, as prompteol:PATH, stays.
    """
    heading, said = _make_heading(card)
    family = ": ".join(filter(None, (card.family, ", ".join(card.tags)))) if card.family else ""
    facts = (
        ("summary", card.summary if said and (card.takes_path or card.takes_methods) else ""),
        ("printed as", card.printed),
        ("runs", "one, without a seed" if card.deterministic else "one for each seed"),
        ("family", family),
        ("paper", card.paper),
        ("code", card.code),
    )
    names = [("published as", f"{name} ({options})") for name, options in card.published_names]
    names += [("also known as", f"{name} ({form})") for name, form in card.known_as]
    sections = [
        Section("What it is", tuple((title, text) for title, text in facts if text)),
        Section("Computes", tuple((line,) for line in card.equations)),
        Section("Differs from the paper or the released code", tuple((line,) for line in card.deviations)),
        *_list_option_sections(card.options),
        Section("Published as / see also", tuple(names)),
    ]
    yield from format_sections(heading, sections, width)


def _make_heading(card: MethodCard) -> tuple[str, bool]:
    """Return the first line of a card, and whether it compares the method with SimCSE."""
    name = f"{card.name} ({card.kind}, version {card.version})"
    if card.adds:
        return f"{name} adds to SimCSE: {card.adds}", True
    if card.instead:
        return f"{name}, in place of SimCSE: {card.instead}", True
    return f"{name}: {card.summary}", False


def format_explanation(explanation: MethodExplanation, width: int | None = None) -> Iterator[str]:
    """Yield the lines of what a method would do in a profile."""
    from bench.method_card import format_value

    options = [(name, (format_value(value), source)) for name, value, source in explanation.options]
    sections = [
        Section("What runs", explanation.facts),
        Section("Stages", explanation.stages),
        *_group_by_stage(options, ("name", "value", "from")),
    ]
    yield from format_sections(explanation.title, sections, width)


def _list_option_sections(options: Sequence[Option]) -> list[Section]:
    from bench.method_card import format_value

    rows = []
    for option in options:
        stage = option.name.rpartition(".")[0]
        meaning = option.help.removeprefix(f"{stage}: ") if stage else option.help
        rows.append((option.name, (format_value(option.default), ", ".join(option.choices), meaning)))
    return _group_by_stage(rows, ("name", "default", "choices", "meaning"))


def _group_by_stage(rows: Sequence[tuple[str, tuple[str, ...]]], header: tuple[str, ...]) -> list[Section]:
    """Return a section for the options of the method, then one for those of each stage."""
    groups: dict[str, list[tuple[str, ...]]] = {"": []}
    for name, cells in rows:
        groups.setdefault(name.rpartition(".")[0], []).append((name, *cells))
    titles: Mapping[str, str] = {stage: f"Options of stage {stage}" for stage in groups if stage}
    return [Section(titles.get(stage, "Options"), tuple(own), header) for stage, own in groups.items()]
