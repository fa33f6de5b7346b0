"""The folder of the modules that make the pages is on Python's path."""

import sys

from tests.support.docs_commands import ROOT

sys.path.insert(0, str(ROOT / "docs"))
