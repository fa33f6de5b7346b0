"""The checks as pytest tests: ``parametrize_with_checks`` for the test suite of a method."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

from bench.conformance.check_registry import CHECKS
from bench.conformance.check_run import NO_CASE, PASSED, Finding, check_method, load_methods

if TYPE_CHECKING:
    import pytest


def parametrize_with_checks(*plugins: str) -> pytest.MarkDecorator:
    """Make a test of every check of every method; needs pytest.

    The test calls ``check(method)``, which fails with the promise, the observation and advice, or skips a
    check of other methods. All checks of a method run at the first call, so it is trained once::

        @parametrize_with_checks("my_methods.py")
        def test_conformance(method, check):
            check(method)

    Args:
        plugins: Files, installed packages or method names, as for ``bench conformance``.

    Raises:
        InputError: an unknown name, or a plug-in that can't be loaded.
    """
    import pytest

    methods = dict.fromkeys(method for plugin in plugins for method in load_methods(plugin))
    cases = [
        pytest.param(method, partial(_assert_check, check.name), id=f"{method}-{check.name}")
        for method in methods
        for check in CHECKS
    ]
    return pytest.mark.parametrize(("method", "check"), cases)


def _assert_check(check: str, method: str) -> None:
    import pytest

    finding = _run_checks(method)[check]
    if finding.verdict == NO_CASE:
        pytest.skip("the check is about other methods")
    if finding.verdict != PASSED:
        reason = finding.reason or "a check before it failed"
        pytest.fail(f"{method}, {check}: {reason}", pytrace=False)


@cache
def _run_checks(method: str) -> Mapping[str, Finding]:
    return {finding.check: finding for finding in check_method(method, Path(_scratch().name))}


@cache
def _scratch() -> tempfile.TemporaryDirectory[str]:
    """Return one temporary folder for all methods, so that they share stages."""
    return tempfile.TemporaryDirectory(prefix="bench-conformance-")
