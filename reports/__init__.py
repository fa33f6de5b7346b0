"""From records to tables: text, markdown, csv, json and LaTeX; installed as ``bench.reports``."""

if not __name__.startswith("bench."):
    raise ImportError("import 'bench.reports', not 'reports': this folder installs as a part of bench")
