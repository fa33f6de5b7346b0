"""Notes of a plan on poolings: rows that train one and evaluate another, last tokens that are words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from bench.plan.backbones import find_missing_needs, read_backbone_facts
from bench.plan.cell import Cell
from bench.training.encoder_options import OWN_POOLING, find_train_pooling

LAST = "last"


def describe_poolings(cells: Iterable[Cell]) -> Iterator[str]:
    """Yield a note for each row that trains and whose poolings deserve one; none for a refused backbone."""
    rows = {cell.method: cell for cell in cells if cell.stages}
    for method, cell in rows.items():
        if any(find_missing_needs(cell)):
            continue
        options = dict(cell.options)
        default = cell.card.defaults.get("train_pooling", OWN_POOLING)
        trained, evaluated = find_train_pooling(options, OWN_POOLING), options.get("pooling")
        if trained not in (default, OWN_POOLING, evaluated):
            way = f": add pooling={trained}" if trained in _list_poolings(cell) else ""
            yield f"{method} trains pooling {trained} and is evaluated with pooling {evaluated}{way}"
        if LAST in (trained, evaluated) and reads_last_word(cell):
            name = cell.model.name if cell.model else ""
            yield f"{method}: {name} ends a sentence without a token, so pooling last reads the last word"


def reads_last_word(cell: Cell) -> bool:
    """Return whether the backbone's files show that a sentence ends without a token of its own."""
    return cell.model is not None and read_backbone_facts(cell.model).end_token is False


def _list_poolings(cell: Cell) -> set[str]:
    """Return the poolings that a row can be evaluated with."""
    return {choice for option in cell.card.options if option.name == "pooling" for choice in option.choices}
