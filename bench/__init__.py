"""bench: benchmarking and leaderboards for unsupervised sentence encoders (distribution ``cse-bench``)."""

__version__ = "0.1.0"
