"""Public names, which ``__init__.py`` loads at first use."""

from bench.conformance.check_run import FAILED as FAILED
from bench.conformance.check_run import NO_CASE as NO_CASE
from bench.conformance.check_run import NOT_RUN as NOT_RUN
from bench.conformance.check_run import PASSED as PASSED
from bench.conformance.check_run import Finding as Finding
from bench.conformance.check_run import check_method as check_method
from bench.conformance.parametrize import parametrize_with_checks as parametrize_with_checks
