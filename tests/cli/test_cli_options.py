"""The options that commands share."""

from __future__ import annotations

import os
from typing import Any

import click
import pytest
from click.testing import CliRunner

from bench.cli.options import make_spec, spec_options, workers_option
from bench.cli.strict_option import StrictOption
from tests.support.cli import every_option


@pytest.mark.parametrize(
    ("arguments", "cores", "environment", "workers"),
    [
        ([], 8, None, 2),
        ([], 1, None, 1),
        (["--threads", "4"], 4, None, 1),
        (["--threads", "4"], 8, None, 2),
        (["--threads", "16"], 8, None, 1),
        (["--device", "cuda"], 8, None, 0),  # as many as its memory holds
        ([], 8, "5", 5),
        (["--workers", "7"], 1, "5", 7),
    ],
)
def test_workers_that_nobody_named_depend_on_the_cores(
    arguments: list[str], cores: int, environment: str | None, workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cores)), raising=False)
    found = []

    @click.command()
    @spec_options
    @workers_option
    def command(**options: Any) -> None:
        found.append(make_spec({**options, "methods": "untrained", "seeds": "1"}).workers)

    result = CliRunner().invoke(command, arguments, env={"BENCH_WORKERS": environment})
    assert result.exit_code == 0, result.output
    assert found == [workers]


def test_every_option_is_given_once_or_is_said_to_be_repeatable() -> None:
    for option in every_option():
        known = isinstance(option, StrictOption) or option.name in ("help", "version")
        assert known, f"{option.opts}: made by click.option, not by bench.cli.options"
        if option.multiple:
            assert "epeatable" in (option.help or "") or option.opts == ["--copy"], option.opts


def test_every_option_has_a_help() -> None:
    assert [option.opts for option in every_option() if not option.help] == []
