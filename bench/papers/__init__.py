"""The papers that ``bench reproduce`` repeats: one TOML file each, an entry for every table and figure.

:mod:`~bench.papers.items` reads them, :mod:`~bench.papers.places` lays an item out (which method and which
printed figure belong in which cell), :mod:`~bench.papers.settings` compares hyperparameters, and
:mod:`~bench.papers.check` finds what contradicts the stored figures, the registry or the profiles.
"""
