"""The checks that every method passes, for anyone to run on a method of their own."""

from bench.conformance.check_run import FAILED, NO_CASE, NOT_RUN, PASSED, Finding, check_method
from bench.conformance.parametrize import parametrize_with_checks

__all__ = ["FAILED", "NOT_RUN", "NO_CASE", "PASSED", "Finding", "check_method", "parametrize_with_checks"]
