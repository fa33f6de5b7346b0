"""Classification whose test texts have fewer classes than its training texts: accuracy is defined there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from bench.data.local_tasks import LocalTask

_UNDEFINED = ("ap", "ap_weighted")  # mteb's scores of two classes


def score_fewer_classes(task: Any, local: LocalTask | None) -> None:
    """Let one of mteb's classification tasks leave average precision out where it is undefined.

    mteb scores two test classes as a binary task. With a third class in training that score is undefined, and
    scikit-learn fails unless one of the labels is 1. A task from files then has none; a task of mteb's keeps
    its own score wherever mteb has one.

    Args:
        task: mteb's object; one of another type stays as it is.
        local: The task's data where it comes from files.
    """
    usual: Callable[..., Any] | None = getattr(task, "_calculate_scores", None)
    if usual is None or task.metadata.type != "Classification":
        return
    many = local is not None and len({label for _, label in local.table("train")}) > 2

    def scores(gold: Sequence[Any], predicted: Sequence[Any]) -> Any:
        """Return mteb's scores of an experiment."""
        if not many:
            try:
                return usual(gold, predicted)
            except ValueError:
                if len({*gold}) != 2:
                    raise
        return _drop_precision(usual, [*gold], [*predicted])

    task._calculate_scores = scores


def _drop_precision(usual: Callable[..., Any], gold: list[Any], predicted: list[Any]) -> Any:
    """Return mteb's scores without average precision; the classes are numbered so that it can be computed."""
    known = sorted({*gold})
    numbers = {label: number for number, label in enumerate([*known, *sorted({*predicted} - {*known})])}
    found = usual([numbers[label] for label in gold], [numbers[label] for label in predicted])
    return {**found, **dict.fromkeys(_UNDEFINED)}
