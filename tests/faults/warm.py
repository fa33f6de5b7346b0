"""Everything that a run imports, loaded once in the process from which warm runs are forked."""

from __future__ import annotations

import gc
import importlib

from bench.records.environment import collect_provenance
from bench.registry import discover
from tests.support.house import module_files

_OTHERS = (  # what bench's modules import inside functions, and what a warm run begins with
    *("jinja2", "pandas", "rich._emoji_codes", "rich.progress", "scipy.stats", "vl_convert"),
    *("tests.faults.runs", "transformers.models.bert.modeling_bert"),
    "torch._dynamo",  # AdamW loads it
)

for _name in module_files():
    if not _name.endswith("__main__"):
        importlib.import_module(f"bench.{_name.removesuffix('__init__')}".rstrip("."))
for _module in _OTHERS:
    importlib.import_module(_module)
discover()
collect_provenance(device="cpu", threads=1)  # git is asked once for all warm runs
gc.freeze()
