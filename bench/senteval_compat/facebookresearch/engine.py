"""``engine.SE`` with the original's tasks."""

from bench.senteval_compat import engine


class SE(engine.SE):
    """SentEval's engine; ``params["fork"]`` is by default "facebookresearch"."""

    fork = "facebookresearch"
