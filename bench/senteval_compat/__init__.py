"""SentEval's interface and result dictionaries (those of SimCSE's fork) over this package's evaluation.

An evaluation script runs unchanged but for one line::

    from bench import senteval_compat as senteval

    se = senteval.engine.SE(params, batcher, prepare)
    results = se.eval(["STS12", "STSBenchmark", "MR"])

The batcher gets every distinct sentence of a task once, as a list of words, in batches of like length.
Transfer classifiers are fitted to their optimum; ``params["transfer_solver"] = "sgd"`` takes SentEval's own
procedure with the script's classifier settings.
"""

from bench.senteval_compat import engine

__all__ = ["engine"]
