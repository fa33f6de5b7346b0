"""Statistics of seeds and items: arrays in, numbers out. A new statistic is one file here.

Scores ``a`` and ``b`` of two methods are (runs,), one per seed; a deterministic method has one score. A
suite's are (runs, tasks); predictions are (runs, pairs). In pairs, run i of both sides shares trained stages
or batches (``bench.stats.seed_pairs``). ``level`` is the confidence level of an interval, or 1 - alpha of a
test, in (0, 1). ``rng`` draws; ``draws`` is at least 100. Differences are a - b, in the scores' unit.
Arguments of another shape, out of their range or infinite raise ``ValueError``.
"""
