"""Shell completion: values of options and arguments, and repairs of click's scripts.

It is fast and silent: plug-in files, torch and errors stay out, and so do names that a shell would change.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import click
from click.shell_completion import (
    BashComplete,
    CompletionItem,
    FishComplete,
    ShellComplete,
    ZshComplete,
    add_completion_class,
    split_arg_string,
)

if TYPE_CHECKING:
    Items: TypeAlias = list[CompletionItem[str]]
    Completer: TypeAlias = Callable[[click.Context, click.Parameter, str], Items]
    Names: TypeAlias = Callable[[click.Context, str], Iterable[str]]

VARIABLE = "_BENCH_COMPLETE"
_PLAIN = re.compile(r"[\w.,:=@+#/\[\]-]+")
_BREAKS = "=:@"  # bash splits words at these
_LONGEST = 5_000_000  # bytes of a record that is read for its name


def is_completing() -> bool:
    """True in a process that a shell started for completions."""
    return os.environ.get(VARIABLE, "").endswith("_complete")


def _make_completer(names: Names, *, several: bool = False, paths: bool = False) -> Completer:
    """Return what click calls for the completions of a value.

    Of ``several`` with commas the last is completed; ``paths`` lets the shell complete files if no name fits.
    """

    def complete(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> Items:
        before, last = _split_last_entry(incomplete) if several else ("", incomplete)
        fitting: set[str] = set()
        with suppress(Exception), open(os.devnull, "w") as out, redirect_stdout(out), redirect_stderr(out):
            fitting = {name for name in names(ctx, last) if name.startswith(last)}
        matches = sorted(fitting.difference(before.split(",")))
        if paths and not matches:
            return [CompletionItem(incomplete, type="file")]
        return [CompletionItem(before + name) for name in matches if _PLAIN.fullmatch(name)]

    return complete


def _split_last_entry(text: str) -> tuple[str, str]:
    """Split a list before its last entry; commas in brackets belong to an entry.

    >>> _split_last_entry("tncse[nce=false,steps=2],jt")
    ('tncse[nce=false,steps=2],', 'jt')
    """
    depth, start = 0, 0
    for position, char in enumerate(text):
        depth += (char == "[") - (char == "]")
        if char == "," and depth == 0:
            start = position + 1
    return text[:start], text[start:]


def _list_methods(ctx: click.Context, incomplete: str) -> list[str]:
    from bench.registry import discover

    return discover().names()


def _list_families(ctx: click.Context, incomplete: str) -> Iterable[str]:
    from bench.method_card import FAMILIES

    return FAMILIES


def _list_methods_or_all(ctx: click.Context, incomplete: str) -> list[str]:
    from bench.config.run_spec import ALL_METHODS

    return [ALL_METHODS, *_list_methods(ctx, incomplete)]


def _list_profiles(ctx: click.Context, incomplete: str) -> Iterator[str]:
    """Yield bench's profiles, and those of files next to the typed path."""
    from bench.config import profiles
    from bench.errors import BenchError

    yield from profiles.profile_names()
    folder = incomplete.rpartition("/")[0]
    for file in Path(folder or ".").glob(f"*{profiles.SUFFIX}"):
        name = f"{folder}/{file.name}" if folder else file.name
        with suppress(BenchError):  # another TOML file
            profiles.load_profile(name)
            yield name


def _list_suites(ctx: click.Context, incomplete: str) -> list[str]:
    from bench.data.suites import SUITES

    return SUITES.names()


def _list_sweeps(ctx: click.Context, incomplete: str) -> Iterable[str]:
    from bench.config.sweeps import SWEEPS

    return SWEEPS


def _results_folder(ctx: click.Context) -> Path:
    return Path(ctx.params.get("into") or ctx.params.get("results") or "results")


def _list_campaigns(ctx: click.Context, incomplete: str) -> Iterator[str]:
    from bench.errors import InputError
    from bench.records.store import ResultStore

    results = _results_folder(ctx)
    for folder in results.iterdir():
        with suppress(InputError):  # no campaign's name, such as .stages
            if any(_find_records(ResultStore(results, folder.name).root)):
                yield folder.name


def _find_records(campaign: Path) -> Iterator[Path]:
    """Yield the files of a campaign's records: PROFILE/METHOD/SEED/SUITE.json."""
    for file in campaign.glob("*/*/*seed*/*.json"):
        if not any(part.startswith(".") for part in file.relative_to(campaign).parts):
            yield file


def _list_recorded(field: str) -> Names:
    """Return what lists the profiles, methods or suites in the records of a command's campaigns."""
    place = ("profile", "method", "seed", "suite").index(field) - 4

    def names(ctx: click.Context, incomplete: str) -> Iterable[str]:
        values: dict[str, str] = {}
        for campaign in _campaign_folders(ctx):
            for file in _find_records(campaign):
                name = file.with_suffix("").parts[place]
                if name not in values and (value := _read_field(file, field, name)):
                    values[name] = value
        return values.values()

    return names


def _campaign_folders(ctx: click.Context) -> Iterator[Path]:
    """Yield the folders of a command's campaigns; of bench check, the reference's."""
    from bench.records.store import ResultStore

    if reference := ctx.params.get("reference"):
        yield Path(reference)
        return
    for campaign in (ctx.params.get("campaign") or "local").split(","):
        yield ResultStore(_results_folder(ctx), campaign).root


def _read_field(file: Path, field: str, name: str) -> str | None:
    """Return a record's field if it matches the name of the record's file or folder."""
    from bench.records.record import safe_name

    try:
        size = file.stat()
        if not stat.S_ISREG(size.st_mode) or size.st_size > _LONGEST:  # a pipe may never end
            return None
        record = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):  # a damaged record
        return None
    value = record.get(field) if isinstance(record, dict) else None
    return value if isinstance(value, str) and safe_name(value) == name else None


method = _make_completer(_list_methods)
methods = _make_completer(_list_methods, several=True)
methods_or_all = _make_completer(_list_methods_or_all, several=True)
method_or_path = _make_completer(_list_methods_or_all, paths=True)
family = _make_completer(_list_families)
profile = _make_completer(_list_profiles, paths=True)
suite = _make_completer(_list_suites)
suites = _make_completer(_list_suites, several=True)
sweep = _make_completer(_list_sweeps)
campaign = _make_completer(_list_campaigns)
campaigns = _make_completer(_list_campaigns, several=True)
recorded_method = _make_completer(_list_recorded("method"))
recorded_methods = _make_completer(_list_recorded("method"), several=True)
recorded_or_path = _make_completer(_list_recorded("method"), paths=True)
recorded_profile = _make_completer(_list_recorded("profile"))
recorded_suite = _make_completer(_list_recorded("suite"))


class _WithOption(ShellComplete):
    """Keep the option of ``--option=value``, which click drops from the completed word."""

    def get_completions(self, args: list[str], incomplete: str) -> Items:
        """Return the completions of a whole word."""
        items = super().get_completions(args, incomplete)
        option, equals, _ = incomplete.partition("=")
        if not (equals and option.startswith("--")):
            return items
        plain = [f"{option}={item.value}" for item in items if item.type == "plain"]
        return [CompletionItem(value) for value in plain] if plain else items


@add_completion_class
class Bash(_WithOption, BashComplete):
    """Bash, which also splits words at "=", ":" and "@", and replaces only the last part."""

    # In click's script a method's brackets would be a pattern of file names
    source_template = BashComplete.source_template.replace("local IFS=", "local -; set -f\n    local IFS=", 1)
    _dropped = 0

    def get_completion_args(self) -> tuple[list[str], str]:
        """Return the words before the cursor and the word at it, with bash's splits joined."""
        words = split_arg_string(os.environ["COMP_WORDS"])
        current = int(os.environ["COMP_CWORD"])
        whole: list[str] = []
        joins = False
        for word in words[1 : current + 1]:
            is_break = bool(word) and not word.strip(_BREAKS)
            if whole and (is_break or joins):
                whole[-1] += word
            else:
                whole.append(word)
            joins = is_break
        if current >= len(words):
            return whole, ""
        incomplete = whole.pop()
        self._dropped = len(incomplete) - (0 if joins else len(words[current]))
        return whole, incomplete

    def format_completion(self, item: CompletionItem[str]) -> str:
        """Return the line of an item, from the word that bash replaces."""
        return f"{item.type},{item.value[self._dropped :]}"


@add_completion_class
class Zsh(_WithOption, ZshComplete):
    """Zsh."""


@add_completion_class
class Fish(_WithOption, FishComplete):
    """Fish."""

    # click's script would end a value at its first comma
    source_template = FishComplete.source_template.replace('string split ","', 'string split -m 1 ","', 1)
