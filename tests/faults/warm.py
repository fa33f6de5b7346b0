"""Everything that a run imports, loaded once in the process from which warm runs are forked."""

from __future__ import annotations

import gc
import importlib

from bench.records.provenance import provenance
from bench.registry import discover

_MODULES = (
    "bench.run.builder",
    "bench.cli.main",
    "bench.eval.mteb_tasks",
    "bench.eval.sts",
    "bench.eval.transfer_suite",
    "bench.nn.backbone",
    "bench.nn.twin",
    "bench.plan.plan",
    "bench.reports.formats.render",
    "bench.run.rerun",
    "bench.run.runner",
    "bench.train.chunks",
    "bench.train.sentence_encoder",
    "rich._emoji_codes",
    "rich.progress",
    "torch._dynamo",  # AdamW loads it
    "transformers.models.bert.modeling_bert",
)

for _module in _MODULES:
    importlib.import_module(_module)
discover()
provenance(device="cpu", threads=1)  # git is asked once for all warm runs
gc.freeze()
