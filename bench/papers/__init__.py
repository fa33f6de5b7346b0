"""The papers that ``bench reproduce`` repeats: one TOML file each, an entry for every table and figure.

:mod:`~bench.papers.paper_items` reads them, :mod:`~bench.papers.item_cells` lays an item out (which method and which
printed figure belong in which cell), :mod:`~bench.papers.hyperparameters` compares hyperparameters, and
:mod:`~bench.papers.item_checks` finds what contradicts the stored figures, the registry or the profiles.
"""
