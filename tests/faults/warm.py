"""Everything that a run imports, loaded once in the process from which warm runs are forked."""

from __future__ import annotations

import gc
import importlib
import pkgutil

import bench
from bench.records.provenance import provenance
from bench.registry import discover

_OTHERS = (  # what bench's modules import inside functions, and what a warm run begins with
    "jinja2",
    "matplotlib.figure",
    "pandas",
    "rich._emoji_codes",
    "rich.progress",
    "scipy.stats",
    "tests.faults.runs",
    "torch._dynamo",  # AdamW loads it
    "transformers.models.bert.modeling_bert",
)

for _found in pkgutil.walk_packages(bench.__path__, "bench."):
    if not _found.name.endswith(".__main__"):
        importlib.import_module(_found.name)
for _module in _OTHERS:
    importlib.import_module(_module)
discover()
provenance(device="cpu", threads=1)  # git is asked once for all warm runs
gc.freeze()
