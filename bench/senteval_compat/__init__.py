"""SentEval's interface and result dictionaries over this package's evaluation.

An evaluation script runs unchanged but for one line::

    from bench import senteval_compat as senteval

    se = senteval.engine.SE(params, batcher, prepare)
    results = se.eval(["STS12", "STSBenchmark", "MR"])

The dictionaries are those of SimCSE's fork. Those of the original, with its supervised STSBenchmark and
SICKRelatedness, come with ``from bench.senteval_compat import facebookresearch as senteval`` or with
``params["fork"] = "facebookresearch"``.

The batcher gets every distinct sentence of a task once, as a list of words, in batches of like length.
Transfer classifiers are fitted to their optimum; ``params["transfer_solver"] = "sgd"`` takes SentEval's own
procedure with the script's classifier settings. So do hidden layers, scikit-learn's classifier and the
classes of ``tools``.
"""

from bench.senteval_compat import (
    binary,
    engine,
    mrpc,
    probing,
    rank,
    sick,
    snli,
    sst,
    sts,
    tools,
    trec,
    utils,
)

__all__ = (
    ["binary", "engine", "mrpc", "probing", "rank", "sick", "snli", "sst", "sts", "tools", "trec", "utils"]
)  # fmt: skip
