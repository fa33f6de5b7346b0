"""Panels of options, ``--help-all``, the help on a terminal and in a pipe, and commands typed alone."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator

import click
import pytest

from bench.cli import help_panels
from bench.cli.commands import BenchGroup, HelpPanels
from bench.cli.help_panels import SMALL, group_options
from bench.cli.main import COMMANDS, EXAMPLES, RENAMED
from bench.cli.main import cli as group
from bench.cli.rich_help import render_help
from bench.cli.strict_options import Panel, StrictOption
from tests.support.cli import Cli, refusal

SCREENS = 2 * 24
WIDTH = 80
STYLE = re.compile(r"\x1b\[[0-9;]*m")


def every(command: click.Command, name: str = "") -> Iterator[tuple[str, HelpPanels]]:
    """Each command and subcommand with its name."""
    assert isinstance(command, HelpPanels), f"{name}: use bench_command or bench_group"
    yield name, command
    for below in command.commands.values() if isinstance(command, click.Group) else ():
        yield from every(below, f"{name} {below.name}".strip())


LARGE = {name: command for name, command in every(group) if len(command.params) > SMALL + 1}


def context_of(name: str) -> click.Context:
    return click.Context(dict(every(group))[name], info_name=f"bench {name}".strip())


def drawn_help(name: str) -> str:
    """The help on a terminal of 80 characters, with its styles."""
    command = dict(every(group))[name]
    return render_help(command, context_of(name), command.list_sections(), command.examples, WIDTH)


def names_in(text: str) -> list[str]:
    """The options that a help lists, by the first name of each."""
    return re.findall(r"^ {2,3}(--?[a-z][a-z-]*)", text.partition("\nOptions:")[2], re.M)


def test_every_option_of_a_large_command_states_its_panel() -> None:
    assert {"run", "report", "check", "sweep", "reproduce", "tune", "compare"} <= LARGE.keys()
    for name, command in LARGE.items():
        options = [option for option in command.params if isinstance(option, click.Option)]
        lacking = [option.opts[0] for option in options if getattr(option, "panel", None) is None]
        assert not lacking, f"bench {name}: strict_option(..., panel=Panel.X) for {lacking}"


def test_every_panel_is_used() -> None:
    options = [option for command in LARGE.values() for option in command.params]
    assert {option.panel for option in options if isinstance(option, StrictOption)} == set(Panel)


@pytest.mark.parametrize("name", [name for name, _ in every(group)])
def test_help_all_has_every_option_once(cli: Cli, name: str) -> None:
    command = dict(every(group))[name]
    own = sorted(option.opts[0] for option in command.params if isinstance(option, click.Option))
    code, whole, _ = cli(*name.split(), "--help-all")
    assert code == 0
    listed = [option for option in names_in(whole) if option not in ("-h", "--help-all")]
    assert sorted(listed) == sorted(own)
    short = cli(*name.split(), "--help")[1]
    shown = [option for option in names_in(short) if option != "-h"]
    found = re.search(rf"^(\d+) more options: bench {name} --help-all$", short, re.M)
    assert len(own) - len(shown) == (int(found[1]) if found else 0)
    assert set(shown) <= set(own)


def test_the_daily_options_of_run_come_first() -> None:
    panels = group_options(LARGE["run"], context_of("run"))
    first, options = next(iter(panels.items()))
    names = [option.opts[-1] for option in options]
    assert first == Panel.MAIN.value
    assert names[:2] == ["--methods", "--seeds"]
    assert {"--profile", "--suite", "--set", "--data", "--campaign", "--results"} <= set(names)
    assert len(names) <= 10  # with --config and --help
    assert list(panels) == [panel.value for panel in Panel if panel.value in panels]


def test_the_help_of_run_fits_two_screens(cli: Cli) -> None:
    plain = cli("run", "--help")[1].splitlines()
    drawn = STYLE.sub("", drawn_help("run")).splitlines()
    assert max(len(plain), len(drawn)) < SCREENS
    assert max(len(line) for line in [*plain, *drawn] if "bench run --methods" not in line) <= WIDTH


@pytest.mark.parametrize("name", sorted(LARGE))
def test_a_terminal_shows_the_same_options_as_a_pipe(cli: Cli, name: str) -> None:
    drawn = STYLE.sub("", drawn_help(name))
    assert names_in(drawn) == names_in(cli(*name.split(), "--help")[1])
    assert "METHOD[.STAGE].OPTION=VALUE" in drawn or name not in ("run", "tune", "sweep")


@pytest.mark.parametrize(
    ("terminal", "term", "styled"), [(True, "xterm", True), (True, "dumb", False), (False, "xterm", False)]
)
def test_help_has_styles_only_on_a_terminal(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, terminal: bool, term: str, styled: bool
) -> None:
    monkeypatch.setenv("TERM", term)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal, raising=False)
    assert help_panels.is_styled() == styled
    code, out, _ = cli("run", "--help")
    assert code == 0
    assert out.isascii()  # no boxes either
    assert ("\x1b" in out) == styled


def test_colours_obey_no_color(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    coloured = r"\x1b\[[0-9;]*(?:3[0-7]|9[0-7])m"
    assert re.search(coloured, drawn_help("run"))
    monkeypatch.setenv("NO_COLOR", "1")
    assert not re.search(coloured, drawn_help("run"))


def test_commands_are_grouped_in_pipe_and_terminal(cli: Cli) -> None:
    titles = [f"{title}:" for title in COMMANDS]
    assert titles == ["Run:", "Read:", "Look up:", "Guard:", "Share:", "Extend:", "Papers:"]
    for text in (cli("--help")[1], STYLE.sub("", drawn_help(""))):
        assert [line.strip() for line in text.splitlines() if line.strip() in titles] == titles
        assert re.findall(r"^  (run|tune|sweep|watch) ", text, re.M) == ["run", "tune", "sweep", "watch"]
    assert isinstance(group, BenchGroup)


ALONE = (
    *("run", "sweep", "tune", "list", "show", "bundle", "merge", "export", "compare", "conformance"),
    *("pack", "pretrain", "gradient", "data fetch", "data rtt", "cache clear"),
)


@pytest.mark.parametrize("name", ALONE)
def test_a_command_alone_prints_what_is_missing_and_its_examples(cli: Cli, name: str) -> None:
    code, out, err = cli(*name.split())
    first, *others = err.splitlines()
    assert (code, out) == (2, "")
    assert first.startswith(f"error: bench {name}: Missing ")
    assert others == [f"example: {example}" for example in EXAMPLES[name]]


def test_what_is_missing_beside_other_arguments_is_one_line(cli: Cli) -> None:
    for words in (("run", "--seeds", "1"), ("bundle", "local"), ("export", "simcse")):
        assert len(refusal(cli, *words).splitlines()) == 1


@pytest.mark.parametrize("name", sorted(RENAMED))
def test_an_old_name_prints_the_new_form(cli: Cli, name: str) -> None:
    code, out, err = cli(name, "simcse", "--anything")
    assert (code, out, err) == (2, "", f"error: bench {name} is now bench {RENAMED[name]}\n")
    command, *words = RENAMED[name].split()
    options = {option for each in group.commands[command].params for option in each.opts}
    assert {word for word in words if word.startswith("--")} <= options
    assert name not in group.commands
    assert name not in EXAMPLES
