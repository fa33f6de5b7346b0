"""Statistics of seeds and items: arrays in, numbers out. A new statistic is one file here.

Scores are (runs,), one per seed; a suite's are (runs, tasks); predictions are (runs, pairs).
"""
