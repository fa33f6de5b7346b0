"""SentEval's interface with the original's dictionaries instead of SimCSE's; see the package above."""

from bench.senteval_compat import binary, mrpc, probing, rank, snli, sst, tools, trec, utils
from bench.senteval_compat.facebookresearch import engine, sick, sts

__all__ = (
    ["binary", "engine", "mrpc", "probing", "rank", "sick", "snli", "sst", "sts", "tools", "trec", "utils"]
)  # fmt: skip
