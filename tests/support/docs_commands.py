"""The commands of README and docs: finding them, checking their words, cutting them short enough to run."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from bench.cli.main import cli
from bench.config import profiles
from bench.config.method_ids import parse_methods, parse_override, parse_seeds
from bench.config.run_spec import ALL_METHODS, MethodRequest
from bench.config.sweeps import find_sweep
from bench.data.mteb_names import split_suites
from bench.data.suites import SUITES
from bench.papers.paper_items import select_items
from bench.registry import discover

ROOT = Path(__file__).parents[2]
PAGES = (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md")))
TEXTS = {page.name: page.read_text(encoding="utf-8") for page in PAGES}
SHOWN = re.compile(r"<!-- shows: (.+?) -->\n```text\n(.*?)```", re.S)
"""A command and lines of what it prints on the committed records."""

OWN_TEST = ("add-your-method.md", "faults.md", "first-method.md", "gate-in-a-build.md", "submit.md")
"""Pages that bring files of their own; their own tests run them, here their commands are parsed."""
COMMITTED = (
    *("mini", "mini-equal", "minilm", "minilm-lm", "minilm-lm-h100", "minilm-lm-h100-bf16"),
    *("minilm-lm-h100-graphs", "minilm-lm-h100-inductor", "mlm-steps", "nodropout", "nodropout-h100"),
    *("reference", "sweeps", "unsee", "views"),
)
"""Campaigns that a clone has: commands that read them run on them, commands that write get another name."""

NOT_RUN = (
    (r"^bench data fetch", "downloads"),
    (r"^bench data verify", "needs the evaluation data"),
    (r"^bench data rtt", "needs translation models"),
    (r"--layout items", "needs the evaluation data"),
    (r"^bench pretrain", "minutes of training"),
    (r"--along .*--out results/(mini-equal|minilm-lm)", "half an hour of training"),
    (r"\$SLURM|^bench merge shards", "needs the folders of all shards"),
    (r"--executor ray", "needs a Ray cluster"),
    (r"--log tensorboard", "needs an optional package"),
    (r"^bench check .*--update", "asks on a terminal"),
    (r"^bench check --encoder", "needs a model folder"),
    (r"^bench check --history", "needs the verdicts of builds"),
    (r"^bench check --reference \S*(origin|v1\.0)", "needs a git revision that this clone lacks"),
    (r"released:|--campaign published|reproduce \w+:readme", "needs published checkpoints"),
    (
        r"--suite \S*(mteb:|local:|contrast:|tncse-|jtcse-|unsee)",
        "needs tasks of the hub or files of the reader's",
    ),
    (
        r"bench sweep NAME|METHOD\b|RECORD\.json|\bDIR\b|\bTEXT\b|\b[AB] B\b|\.\.\.|=N\b|seed N\b",
        "a placeholder",
    ),
    (r"NAME", "a placeholder"),
    (r"--config|FILE\.toml", "needs a file of the reader's"),
    (r"^bench init", "writes a folder; its own test runs it"),
    (r"--table published", "needs records of a paper's suite"),
)
"""Commands that are parsed and not run, by the first pattern that is found in them, and why."""

DROPPED = (
    *("--profile", "--data", "--copy", "--corpus", "--text-column", "--pairs", "--device", "--backbone"),
    *("--world-seed", "--workers", "--ranks", "--compile"),
)
"""Options that lead away from profile mini or from one process, left out with their values."""
WRITERS = ("run", "sweep", "reproduce")
COMPARED = ("mine",)
"""Campaigns that a page makes and then compares, which takes two seeds."""
MINI = {"reproduce": ["--profile", "mini"]}
"""What a command needs to run on profile mini where that isn't its default."""


@dataclass(frozen=True)
class Command:
    """A command as a page has it."""

    page: Path
    text: str
    in_block: bool

    @property
    def words(self) -> list[str]:
        """Its words up to a redirection or pipe, ``bench`` first."""
        words = shlex.split(re.sub(r"\s#\s.*", "", self.text))  # simcse#1 holds no comment
        ends = [i for i, word in enumerate(words) if word in (">", "|", "&&", ">>")]
        return words[: ends[0]] if ends else words

    def __str__(self) -> str:
        return f"{self.page.name}: {self.text}"


def blocks(text: str) -> list[tuple[str, str]]:
    """Fenced blocks, (language, content)."""
    return re.findall(r"^```[ ]?(\w*).*?\n(.*?)^```$", text, re.M | re.S)


def spans(text: str) -> list[str]:
    """Inline code outside of blocks and comments, with line ends as blanks."""
    prose = re.sub(r"<!--.*?-->", "", re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S), flags=re.S)
    return [" ".join(found.split()).replace("\\|", "|") for found in re.findall(r"`([^`]+)`", prose)]


def commands(page: Path, text: str | None = None) -> list[Command]:
    """Every ``bench ...`` of a page."""
    text = page.read_text(encoding="utf-8") if text is None else text
    found = []
    for _, content in blocks(text):
        for line in content.replace("\\\n", " ").splitlines():
            line = " ".join(line.strip().removeprefix("- run: ").removeprefix(".venv/bin/").split())
            if line.startswith("bench "):
                found.append(Command(page, line, True))
    found += [Command(page, span, False) for span in spans(text) if span.startswith("bench ")]
    return found


def parsed(words: list[str], *, whole: bool = True) -> tuple[str, dict[str, Any]]:
    """Parse a command line as click does, without running it; a part of one may lack what is required."""
    command: click.Command = cli
    rest, names = words[1:], []
    while isinstance(command, click.Group) and rest and not rest[0].startswith("-"):
        names.append(rest[0])
        command = command.commands[rest.pop(0)]
    if not rest:
        return " ".join(names), {}
    rest = ["1" if word == "N" else word for word in rest]
    if "--config" in rest:  # a file of the reader's, which may give what is missing here
        at = rest.index("--config")
        del rest[at : at + 2]
        whole = False
    try:
        with command.make_context(" ".join(names), rest) as context:
            return " ".join(names), context.params
    except click.exceptions.Exit:  # --help and --version
        return " ".join(names), {}
    except click.MissingParameter:
        if whole:
            raise
        return " ".join(names), {}


def check_names(name: str, params: dict[str, Any]) -> None:
    """Raise if a method, option, suite, profile, sweep or list of seeds in a command doesn't exist."""
    if name == "run" and params:
        for request in parse_methods(params["methods"]):
            check_method(request)
    if params and params.get("name") not in (None, "NAME"):
        {"sweep": find_sweep, "reproduce": select_items}.get(name, str)(params["name"])
    for text in params.get("overrides", ()):
        override = parse_override(text.replace("...", "0"))
        option = f"{override.stage}.{override.option}" if override.stage else override.option
        discover().get(override.method).card.option(option, text)
    if isinstance(params.get("seeds"), str):
        parse_seeds(params["seeds"])
    if params.get("profile") not in (None, "NAME"):
        profiles.load_profile(params["profile"])
    if params.get("suites") not in (None, "SUITE", "NAME,..."):
        for suite in split_suites(params["suites"], SUITES.names()):
            if not suite.startswith(("mteb:", "local:", "contrast:")):
                SUITES.get(suite)


def check_method(request: MethodRequest) -> None:
    """Raise if a method or one of its options doesn't exist."""
    if request.name in (ALL_METHODS, "METHOD"):
        return
    card = discover().get(request.name).card
    for option, value in request.options:
        found = card.option(option, request.text)
        if value not in ("…", "..."):
            found.parse(value, request.text)
    if card.takes_methods and request.argument and request.name == "ensemble":
        for part in request.argument.split("+"):
            check_method(parse_methods(part.rpartition("*")[2])[0])


def why_not_run(command: Command) -> str | None:
    """Why a command is not run, None if it is."""
    if why := next((why for pattern, why in NOT_RUN if re.search(pattern, command.text)), None):
        return why
    return None if command.in_block or is_whole(command) else "names a command or an option"


def is_whole(command: Command) -> bool:
    """True if a command in a sentence can be run as it is."""
    try:
        return len(command.words) > 2 and bool(parsed(command.words)[1])
    except click.UsageError:
        return False


def small(words: list[str]) -> list[str]:
    """The same command on profile mini with a seed or two; what it writes goes to a campaign of its own.

    The reader's encoder is the profile's, untrained.
    """
    kept: list[str] = []
    rest = list(words) if "--seeds" in words or words[1] not in WRITERS else [*words, "--seeds", "1"]
    while rest:
        word = rest.pop(0)
        if word in DROPPED and words[1] not in ("compare", "stats", "report", "verify", "check"):
            rest.pop(0)
        elif word == "--seeds":
            seeds = len(parse_seeds(rest.pop(0)))
            several = "--campaign" not in words or words[words.index("--campaign") + 1] in COMPARED
            kept += [word, "1,2" if seeds > 1 and several else "1"]
        elif word == "--suite" and not set(rest[0].split(",")) <= {"mini", "mini-dev", "toy"}:
            kept += [word, "mini"]
            rest.pop(0)
        elif word == "--methods" and rest[0] == ALL_METHODS:
            kept += [word, "untrained,word_overlap"]
            rest.pop(0)
        elif word == "--campaign" and words[1] in WRITERS and rest[0] in COMMITTED:
            kept += [word, f"docs-{rest.pop(0)}"]
        elif word == "--rerun" and rest and rest[0].isdecimal():  # one cell that takes no training
            kept = ["bench", "verify", "results/mini/mini/word_overlap", word, "1"]
            rest.pop(0)
        else:
            kept.append(
                re.sub(
                    r"\bsteps=\d+", "steps=2", re.sub(r"(st|hf):(PATH|\"[^\"]*\")(:avg)?", "untrained", word)
                )
            )
    return kept + quick(words)


def quick(words: list[str]) -> list[str]:
    """What a command says besides so that it doesn't train or read what other commands do."""
    added = MINI.get(words[1], []) if "--check" not in words else []
    if words[1:] in (["verify"], ["verify", "--seal"]):  # `make verify` reads all records
        return [*added, "results/mini"]
    if words[1] == "check" and not {"--methods", "--results", "--reference", "--encoder"} & {*words}:
        return [*added, "--methods", "untrained,word_overlap"]  # `make check` trains the others
    if words[1] in ("compare", "stats") and not {"--draws", "--show-items"} & {*words}:
        return [*added, "--draws", "200"]
    return added


def reads_committed(words: list[str]) -> bool:
    """True for a command on records that a clone has, whose data must be whole."""
    if words[1] in WRITERS:
        return False
    places = [word for word in words if word.startswith("results/") and word.split("/")[1] in COMMITTED]
    named = words[words.index("--campaign") + 1] if "--campaign" in words else ""
    repeats = (words[1] == "check" and "--reference" not in words) or words[1:3] == ["reproduce", "--check"]
    return bool(places) or named in COMMITTED or repeats or words[1] == "verify"
