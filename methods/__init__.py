"""The implemented methods: one file each; installed as ``bench.methods``."""

if not __name__.startswith("bench."):
    raise ImportError("import 'bench.methods', not 'methods': this folder installs as a part of bench")
