"""SentEval's interface with the original's dictionaries instead of SimCSE's; see the package above."""

from bench.senteval_compat import binary, mrpc, probing, sst, tools, trec, utils
from bench.senteval_compat.facebookresearch import engine, sick, sts

__all__ = ["binary", "engine", "mrpc", "probing", "sick", "sst", "sts", "tools", "trec", "utils"]
