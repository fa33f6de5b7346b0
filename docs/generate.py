"""What the site makes from the program itself: a page for every method, and tables from committed records.

``mkdocs build`` calls this through ``docs/hooks.py``, so it is never committed and never stale.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import fmean

import claims
import evidence
import questions
from click.testing import CliRunner

from bench.card import Method, MethodCard, Option, OptionValue
from bench.cli.main import cli
from bench.data.published import Line, lines
from bench.data.suites import SUITES
from bench.errors import InputError
from bench.plan import scale
from bench.plan.cells import profile_options
from bench.records.facts import FACTS
from bench.records.record import RunRecord
from bench.records.store import ResultStore
from bench.registry import discover
from bench.reports.campaign import make_campaign
from bench.reports.figures.marks import escape
from bench.reports.figures.of_records import figures
from bench.reports.figures.svg import draw
from bench.reports.grid import SCALE
from bench.reports.tables.published import Footnotes, merged, quoted_row
from bench.request import profiles
from bench.verify.findings import CHECKS

RESULTS = Path(__file__).parents[1] / "results"
EPOCH_HOURS = 125
"""Core-hours of SimCSE's epoch on BERT-base, as reproduce.md computes them."""
KINDS = {
    "method": "Methods of the papers",
    "baseline": "Baselines",
    "supervised": "Supervised",
    "external": "Encoders from elsewhere",
}
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
    """The list of methods by kind."""
    parts = [
        "# All methods\n\nPick a method here; its page has equations, options, defaults for every backbone, "
        "what differs from the paper, and the figures that papers print. `bench show NAME` prints the same "
        "card. How to name a method with its options stands in [Choosing methods](../choosing.md).\n"
    ]
    for kind, title in KINDS.items():
        rows = [(f"[`{card.name}`]({card.name}.md)", card.summary) for card in cards if card.kind == kind]
        parts.append(f"## {title}\n\n{_table(('`--methods`', 'what it is'), rows)}")
    return "\n".join(parts)


def method_page(method: Method) -> str:
    """One method's page."""
    card = method.card
    lead = f"`bench run --methods {_example(card)}` evaluates it. "
    lead += "It runs once, without a seed." if card.deterministic else "It has a run for every seed."
    parts = [f"# {card.name}\n\n{_sentence(card.summary)}\n\n{lead}\n", _sources(card)]
    if card.equations:
        parts.append("## Equations\n\n``` { .text .wrap }\n" + "\n".join(card.equations) + "\n```\n")
    parts.append("## Options\n\n" + _options(card))
    if card.deviations:
        said = "\n".join(f"- {_text(line)}" for line in card.deviations)
        parts.append(f"## Differences from the paper and the released code\n\n{said}\n")
    printed = _published(card)
    if printed:
        parts.append(f"## Published scores\n\n{printed}")
    return "\n".join(parts)


def names_in_papers(card: MethodCard) -> tuple[str, ...]:
    """Names under which published tables print a method."""
    return tuple(dict.fromkeys((card.name, *(name for name, _ in card.published_names))))


def filled(markdown: str) -> str:
    """Put tables in the place of ``<!-- leaderboard: CAMPAIGN -->`` and of the names in ``_TABLES``.

    ``<!-- costs: CAMPAIGN -->`` draws its scores against the CPU seconds of training.
    ``<!-- rates: PROFILE -->`` is what ``bench tune`` found for its methods.
    ``<!-- coverage: METHODS | DESIGNS | TARGETS -->`` is a table of what was measured of procedures: names of
    coverage.csv with semicolons between, the last two left out for all.
    ``<!-- claims: CAMPAIGN -->`` holds the papers' leads over SimCSE against its records: ``claims.table``.
    ``<!-- questions: CAMPAIGN`` and a question a line are answered together: ``questions.table``.
    """
    markdown = re.sub(r"<!-- leaderboard: (\S+) -->", lambda found: leaderboard(found[1]), markdown)
    markdown = re.sub(r"<!-- claims: (\S+) -->", lambda found: claims.table(RESULTS, found[1]), markdown)
    markdown = re.sub(r"<!-- costs: (\S+) -->", lambda found: costs_plot(found[1]), markdown)
    markdown = re.sub(r"<!-- rates: (\S+) -->", lambda found: rates_table(found[1]), markdown)
    markdown = re.sub(
        r"<!-- coverage: (.+?) -->", lambda found: evidence.table(*found[1].split("|")), markdown
    )
    markdown = re.sub(
        r"<!-- questions: (\S+)\n(.+?)-->",
        lambda found: questions.table(RESULTS, found[1], found[2]),
        markdown,
        flags=re.S,
    )
    for name, table in _TABLES.items():
        if f"<!-- {name} -->" in markdown:
            markdown = markdown.replace(f"<!-- {name} -->", table())
    return markdown


def leaderboard(campaign: str) -> str:
    """A campaign's leaderboard as markdown."""
    where = ["--results", str(RESULTS), "--campaign", campaign]
    done = CliRunner().invoke(cli, ["report", *where, "--table", "leaderboard", "--format", "markdown"])
    if done.exception:
        raise SystemExit(f"docs: no leaderboard of {campaign}: {done.exception}")
    return done.output


def costs_plot(campaign: str) -> str:
    """A campaign's averages against the CPU seconds of training, as the element of a figure."""
    store = ResultStore(RESULTS, campaign)
    drawn = [one for one in figures(make_campaign(store, store.records())) if one.name.endswith("-training")]
    if not drawn:
        raise SystemExit(f"docs: no costs of {campaign}")
    return "\n".join(
        f'<figure class="plot">{draw(one)}<figcaption>{escape(one.title)}</figcaption></figure>\n'
        for one in drawn
    )


def rates_table(profile: str) -> str:
    """Dev scores of the values that each option of a profile's methods was chosen from, as markdown."""
    tuned = profiles.load(profile).tuning
    values = sorted({value for row in tuned for value, _ in row["dev"]})
    rows = []
    for row in tuned:
        dev = dict(row["dev"])
        best = max(dev, key=dev.__getitem__)
        cells = [f"{100 * dev[value]:.2f}" if value in dev else "" for value in values]
        marked = [f"**{cell}**" if value == best else cell for value, cell in zip(values, cells, strict=True)]
        rows.append((f"`{row['method']}`", f"`{row['option']}`", *marked))
    return _table(("method", "option", *(f"{value:g}" for value in values)), rows)


def made_table() -> str:
    """Loss along the training that made the backbone of minilm-lm, as markdown."""
    made = profiles.load("minilm-lm").backbone["made"]
    steps, losses = zip(*made["loss"], strict=True)
    row = ("loss of the steps before", *(f"{loss:.2f}" for loss in losses))
    said = f"Masked accuracy on unseen lines {made['masked_accuracy']:.3f}; the weights: `{made['weights']}`."
    return f"{_table(('step', *map(str, steps)), [row])}\n{said}\n"


def mlm_table() -> str:
    """Dev scores over the steps of language modelling that made the backbone, as markdown."""
    of_steps: dict[int, list[RunRecord]] = {}
    start = profiles.load("minilm-lm").backbone["from"]
    for record in ResultStore(RESULTS, "mlm-steps").records():
        named = record.backbone or {}
        steps = 0 if named["sha256"] == start else int(named["name"].removeprefix("lm"))
        of_steps.setdefault(steps, []).append(record)
    rows = []
    for steps, found in sorted(of_steps.items()):
        scores = {name: [SCALE * (r.score("avg") or 0) for r in found if r.method == name] for name in _CURVE}
        cells = [" and ".join(f"{score:.2f}" for score in sorted(own)) for own in scores.values()]
        rows.append((f"{steps:,}", *cells))
    return _table(("steps", *_CURVE.values()), rows)


_CURVE = {
    "untrained": "untrained, [CLS]",
    "untrained[pooling=avg]": "untrained, mean",
    "simcse": "SimCSE, 60 steps, two seeds",
}


def relative_costs() -> dict[str, float]:
    """CPU time of a seed of each method on the million sentences, in epochs of SimCSE.

    The sum over stages of CPU seconds a training sentence in campaign ``mini-equal`` times the epochs in
    profile ``bert-base``, over SimCSE's of the same seed; the mean over seeds. Methods that read no sentences
    of it in some stage have none.
    """
    records = [
        r
        for r in ResultStore(RESULTS, "mini-equal").records()
        if r.method == r.name and (stages := r.training.get("stages"))
        if all(stage["sentences_seen"] for stage in stages.values())
    ]
    unit = {record.seed: _cost(record) for record in records if record.name == "simcse"}
    records = [record for record in records if record.seed in unit]
    names = dict.fromkeys(record.name for record in records)
    return {name: fmean(_cost(r) / unit[r.seed] for r in records if r.name == name) for name in names}


def cost_table() -> str:
    """Those costs, and the core-hours that they come to, as markdown."""
    rows = [
        (f"`{name}`", f"{cost:.1f}", f"{5 * round(EPOCH_HOURS * cost / 5):,}")
        for name, cost in sorted(relative_costs().items(), key=lambda item: (item[1], item[0]))
    ]
    return _table(("method", "epochs of SimCSE", "core-hours a seed, computed"), rows)


def checks_table() -> str:
    """What verification checks, from the program's own table, as markdown."""
    return _table(("check", "it holds that"), list(CHECKS.items()))


def facts_table() -> str:
    """What determines a result, from the program's own table, as markdown."""
    header = ("fact", "part of the key", "the gate compares", "seeds are averaged")
    rows = [
        (
            fact.name,
            "yes" if fact.keyed else "no",
            "no" if fact.breaks else "yes",
            "no" if fact.keyed and fact.in_family else "yes",
        )
        for fact in FACTS
    ]
    return _table(header, rows)


def scale_table() -> str:
    """Hours of the papers' methods on one GPU, by arithmetic, as markdown."""
    header = ("method", "passes x tokens of each stage", "hours a seed", "of its own stages")
    return _table(header, scale.rows())


def _cost(record: RunRecord) -> float:
    """CPU seconds a sentence of the training text."""
    seconds, total = record.timing["training_cpu_seconds"], 0.0
    profile, methods = profiles.load("bert-base"), discover()
    for role, stage in record.training["stages"].items():
        last = role.rpartition("/")[2]
        card = methods.get(last if last in methods.names() else record.name).card
        epochs = int(profile_options(card, profile).get("epochs", 1))
        total += epochs * seconds[role] / stage["sentences_seen"]
    return total


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
        ("version", f"{card.version}; it rises when the method's numbers change"),
    ]
    if card.padding_matters:
        facts.append(("padding", "its loss sees padding: a batch padded further gives another loss"))
    return "".join(f"- {name}: {_text(fact)}\n" for name, fact in facts if fact)


def _options(card: MethodCard) -> str:
    """Every option with its default, and where a profile says otherwise."""
    if not card.options:
        return "It has none.\n"
    shown = [profiles.load(name) for name in profiles.names() if profiles.load(name).suites]
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
    return f"{lead}{note}\n{_table(header, rows)}"


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
        found = [line for line in lines(suite) if line.first.method in names_in_papers(card)]
        if found:
            parts.append(_printed(suite, found))
    other = [
        f"`{name}`"
        for name, _ in SUITES
        if name not in PUBLISHED and any(x.first.method in names_in_papers(card) for x in lines(name))
    ]
    if other:
        parts.append(f"Also printed for {', '.join(other)}: `bench report --table published` shows them.\n")
    return "\n".join(parts)


def _printed(suite: str, found: Sequence[Line]) -> str:
    tasks, notes = (*SUITES.get(suite).tasks, "avg"), Footnotes()
    rows: list[tuple[str, ...]] = []
    for source, line in merged(found):
        cells = quoted_row(line, tasks, False, notes)
        texts = (cell if isinstance(cell, str) else f"{cell.text}{cell.sign}" for cell in cells)
        rows.append((_text(source), line.first.backbone, line.text or "not stated", *map(_text, texts)))
    header = ("source", "backbone", "training text", *tasks)
    said = "".join(f"- {_text(note)}\n" for note in notes.notes)
    return f"{suite}, x 100 as printed:\n\n{_table(header, rows)}\n{said}"


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines_ = [f"| {' | '.join(row)} |" for row in (header, ["---"] * len(header), *rows)]
    return "\n".join(lines_) + "\n"


def _text(text: str) -> str:
    """Plain text in markdown: nothing in it is markup."""
    return text.translate({ord(sign): f"&#{ord(sign)};" for sign in "\\`*_{}[]<>#|"})


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + ("" if text.endswith(".") else ".")


_TABLES = {
    "cost": cost_table,
    "scale": scale_table,
    "facts": facts_table,
    "checks": checks_table,
    "mlm steps": mlm_table,
    "mlm made": made_table,
}
"""Tables by the comment in whose place they stand."""
