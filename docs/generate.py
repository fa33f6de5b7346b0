"""What the site alone has, made from the program itself: a page for every method, and plots of records.

``mkdocs build`` calls this through ``docs/hooks.py``, so it is never committed and never stale.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from page_tables import RESULTS
from rows import markdown_table

from bench.config import profiles
from bench.data.bibliography import find_entries
from bench.data.published_tables import PublishedRow, published_rows
from bench.data.suites import SUITES
from bench.errors import InputError
from bench.method_card import FAMILIES, Method, MethodCard, Option, OptionValue
from bench.plan.cell_expansion import profile_options
from bench.records.store import ResultStore
from bench.registry import discover
from bench.render.svg import draw_svg
from bench.render.svg_marks import escape_markup
from bench.reports.campaign import make_campaign
from bench.reports.figures.suite_plots import suite_figures
from bench.reports.tables.published_figures import Footnotes, merge_lines, quote_row

PUBLISHED = ("sts7", "transfer7")
"""Suites whose printed figures stand on a method's page."""


def method_pages() -> dict[str, str]:
    """Path below the docs to markdown: ``methods/NAME.md`` for every registered method, and the index."""
    methods = own_methods()
    pages = {f"methods/{method.card.name}.md": method_page(method) for method in methods}
    return {"methods/index.md": index_page([method.card for method in methods])} | pages


def own_methods() -> list[Method]:
    """Registered methods of bench's own packages."""
    registry = discover()
    return [method for name, method in registry if registry.origin(name).startswith("bench.")]


def index_page(cards: Sequence[MethodCard]) -> str:
    """The list of methods by family."""
    parts = [
        "# All methods\n\nPick a method here; its page has equations, options, defaults for every backbone, "
        "what differs from the paper, and the figures that papers print. `bench show NAME` prints the same "
        "card. How to name a method with its options stands in [Choosing methods](../choosing.md).\n"
    ]
    for family, meaning in FAMILIES.items():
        rows = [(f"[`{card.name}`]({card.name}.md)", card.summary) for card in cards if card.family == family]
        title = family.replace("-", " ") if family == "any-encoder" else family
        table = markdown_table(("`--methods`", "what it is"), rows)
        parts.append(f"## {title.capitalize()}\n\n{_sentence(meaning)}\n\n{table}")
    return "\n".join(parts)


def method_page(method: Method) -> str:
    """One method's page."""
    card = method.card
    lead = f"`bench run --methods {_example(card)}` evaluates it. "
    lead += "It runs once, without a seed." if card.deterministic else "It has a run for every seed."
    parts = [f"# {card.name}\n\n{_sentence(card.summary)}\n\n{_comparison(card)}{lead}\n", _sources(card)]
    if card.equations:
        parts.append("## Equations\n\n``` { .text .wrap }\n" + "\n".join(card.equations) + "\n```\n")
    parts.append("## Options\n\n" + _options(card))
    if card.deviations:
        said = "\n".join(f"- {_text(line)}" for line in card.deviations)
        parts.append(f"## Differences from the paper and the released code\n\n{said}\n")
    printed = _published(card)
    if printed:
        parts.append(f"## Published scores\n\n{printed}")
    if card.cites:
        entries = "\n\n".join(find_entries(card.cites, card.name))
        parts.append(f"## BibTeX\n\n```bibtex\n{entries}\n```\n")
    return "\n".join(parts)


def _comparison(card: MethodCard) -> str:
    if card.adds:
        return f"It adds to SimCSE: {_text(card.adds)}.\n\n"
    return f"In place of SimCSE: {_text(card.instead)}.\n\n" if card.instead else ""


def names_in_papers(card: MethodCard) -> tuple[str, ...]:
    """Names under which published tables print a method."""
    return tuple(dict.fromkeys((card.name, *(name for name, _ in card.published_names))))


def drawn(markdown: str) -> str:
    """Return a page with plots of scores against CPU seconds where ``<!-- costs: CAMPAIGN -->`` stands."""
    return re.sub(r"<!-- costs: (\S+) -->", lambda found: costs_plot(found[1]), markdown)


def costs_plot(campaign: str) -> str:
    """A campaign's averages against the CPU seconds of training, as the element of a figure."""
    store = ResultStore(RESULTS, campaign)
    drawn = [
        one for one in suite_figures(make_campaign(store, store.records())) if one.name.endswith("-training")
    ]
    if not drawn:
        raise SystemExit(f"docs: no costs of {campaign}")
    return "\n".join(
        f'<figure class="plot">{draw_svg(one)}<figcaption>{escape_markup(one.title)}</figcaption></figure>\n'
        for one in drawn
    )


def _example(card: MethodCard) -> str:
    if card.name == "released":
        return "released:NAME"
    if card.takes_methods:
        return f"{card.name}:METHODS"
    if card.takes_file:
        return f"{card.name}:FILE"
    return f"{card.name}:PATH" if card.takes_path else card.name


def _sources(card: MethodCard) -> str:
    facts = [
        ("paper", card.paper),
        ("code read", card.code),
        ("kind", card.kind),
        ("family", card.family),
        ("version", f"{card.version}; it rises when the method's numbers change"),
    ]
    if card.padding_matters:
        facts.append(("padding", "its loss sees padding: a batch padded further gives another loss"))
    return "".join(f"- {name}: {_text(fact)}\n" for name, fact in facts if fact)


def _options(card: MethodCard) -> str:
    """Every option with its default, and where a profile says otherwise."""
    if not card.options:
        return "It has none.\n"
    known = map(profiles.load_profile, profiles.profile_names())
    shown = [p for p in known if p.suites and (p.methods or p.rates is not None)]
    defaults = {option.name: option.default for option in card.options}
    ours = {profile.name: _resolved(card, profile) for profile in shown}
    different = [name for name, values in ours.items() if values != defaults]
    rows = [
        (
            f"`{option.name}`",
            f"`{_value(option.default)}`",
            *(_cell(ours[name][option.name], option.default) for name in different),
            _help(option),
        )
        for option in card.options
    ]
    same = [name for name in ours if name not in different]
    note = f"As the default in {', '.join(f'`{name}`' for name in same)}.\n" if same else ""
    lead = "An empty field is the default. " if different else ""
    header = ("option", "default", *(f"`{name}`" for name in different), "what it is")
    return f"{lead}{note}\n{markdown_table(header, rows)}"


def _resolved(card: MethodCard, profile: profiles.Profile) -> dict[str, OptionValue]:
    try:
        return profile_options(card, profile)
    except InputError as error:
        raise SystemExit(f"docs: {error}") from error


def _cell(value: OptionValue, default: OptionValue) -> str:
    return "" if value == default else f"`{_value(value)}`"


def _value(value: OptionValue) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value) or '""'


def _help(option: Option) -> str:
    allowed = f" One of {', '.join(f'`{choice}`' for choice in option.choices)}." if option.choices else ""
    return f"{_text(_sentence(option.help))}{allowed}"


def _published(card: MethodCard) -> str:
    """Tables of printed figures, with what is known to be wrong in them."""
    parts = []
    for suite in PUBLISHED:
        found = [line for line in published_rows(suite) if line.first.method in names_in_papers(card)]
        if found:
            parts.append(_printed(suite, found))
    other = [
        f"`{name}`"
        for name, _ in SUITES
        if name not in PUBLISHED
        and any(x.first.method in names_in_papers(card) for x in published_rows(name))
    ]
    if other:
        parts.append(f"Also printed for {', '.join(other)}: `bench report --table published` shows them.\n")
    return "\n".join(parts)


def _printed(suite: str, found: Sequence[PublishedRow]) -> str:
    tasks, notes = (*SUITES.get(suite).tasks, "avg"), Footnotes()
    rows: list[tuple[str, ...]] = []
    for source, line in merge_lines(found):
        cells = quote_row(line, tasks, False, notes)
        texts = (cell if isinstance(cell, str) else f"{cell.text}{cell.sign}" for cell in cells)
        rows.append((_text(source), line.first.backbone, line.text or "not stated", *map(_text, texts)))
    header = ("source", "backbone", "training text", *tasks)
    said = "".join(f"- {_text(note)}\n" for note in notes.notes)
    return f"{suite}, x 100 as printed:\n\n{markdown_table(header, rows)}\n{said}"


def _text(text: str) -> str:
    """Plain text in markdown: nothing in it is markup."""
    return text.translate({ord(sign): f"&#{ord(sign)};" for sign in "\\`*_{}[]<>#|"})


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + ("" if text.endswith(".") else ".")
