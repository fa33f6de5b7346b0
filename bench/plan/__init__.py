"""Plans: cells, jobs, keys, and checks before a run."""
