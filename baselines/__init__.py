"""The baselines: one file each; installed as ``bench.baselines``."""

if not __name__.startswith("bench."):
    raise ImportError("import 'bench.baselines', not 'baselines': this folder installs as a part of bench")
