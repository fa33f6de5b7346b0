"""``--methods all``: the methods that it stands for, and those that a plan leaves out for a missing input."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from bench.config.profiles import Profile
from bench.config.run_spec import ALL_METHODS, MethodRequest, RunSpec
from bench.data.training_data import TrainingData, find_missing_texts
from bench.errors import InputError
from bench.eval.suite_measures import measure_of
from bench.method_card import NEEDS
from bench.plan.backbones import check_backbone, find_missing_needs, suggest_backbone
from bench.plan.cell import Cell
from bench.plan.cell_expansion import describe_short_text, find_short_texts
from bench.plan.lora_checks import check_lora
from bench.registry import METHODS, discover


@dataclass(frozen=True)
class LeftOut:
    """Methods of ``--methods all`` that a plan leaves out for one reason.

    Args:
        methods: Their names, in the order of the registry.
        reason: The missing input, with the command that brings it as its hint.
    """

    methods: tuple[str, ...]
    reason: InputError

    def __str__(self) -> str:
        """Return methods and reason on one line, escaped for the terminal."""
        return f"left out: {', '.join(self.methods)}: {self.reason}"


FindErrors = Callable[[MethodRequest], Sequence[InputError]]


def expand_all_methods(
    requests: Sequence[MethodRequest], find_errors: FindErrors
) -> tuple[tuple[MethodRequest, ...], tuple[LeftOut, ...]]:
    """Replace "all" by every method that stands alone; leave out those whose inputs are missing.

    Args:
        requests: As asked for; a method that is named keeps its place, whatever it lacks.
        find_errors: Returns the errors for the missing inputs of a method.

    Raises:
        InputError: "all" with nothing to run.
    """
    lacking: list[tuple[str, InputError]] = []
    expanded: list[MethodRequest] = []
    for request in requests:
        if request.text != ALL_METHODS:
            expanded.append(request)
            continue
        for one in _list_methods():
            errors = find_errors(one)
            lacking += [(one.name, error) for error in errors]
            if not errors:
                expanded.append(one)
    left_out = _group_by_reason(lacking)
    if left_out and not expanded:
        what = f"no method of '{ALL_METHODS}' has its inputs"
        raise InputError(what, where="--methods", hint=" | ".join(map(str, left_out)))
    return tuple(expanded), left_out


def _group_by_reason(lacking: Iterable[tuple[str, InputError]]) -> tuple[LeftOut, ...]:
    groups: dict[str, tuple[dict[str, None], InputError]] = {}
    for name, error in lacking:
        groups.setdefault(str(error), ({}, error))[0][name] = None
    return tuple(LeftOut(tuple(names), error) for names, error in groups.values())


def leave_out_short_texts(
    cells: Sequence[Cell], training: TrainingData | None, expanded: Collection[str]
) -> tuple[list[Cell], tuple[LeftOut, ...]]:
    """Leave out the cells of ``expanded`` methods, which "all" stands for, with less than a batch of text."""
    lacking = []
    for text, short in find_short_texts(cells, training).items():
        error = InputError(
            describe_short_text(text), hint=f"give a longer text, or --set METHOD.batch_size={text[1]}"
        )
        lacking += [(cell, error) for cell in short.values() if cell.method in expanded]
    rows = {cell.method for cell, _ in lacking}
    left_out = _group_by_reason((cell.card.name, error) for cell, error in lacking)
    return [cell for cell in cells if cell.method not in rows], left_out


def _list_methods() -> list[MethodRequest]:
    cards = [method.card for _, method in discover()]
    return [MethodRequest(card.name, card.name) for card in cards if card.stands_alone]


def find_input_errors(
    request: MethodRequest,
    cells: Sequence[Cell],
    found: Sequence[InputError],
    texts: set[str],
    spec: RunSpec,
    profile: Profile,
) -> list[InputError]:
    """Return the errors for inputs that only some methods need and that are missing.

    Args:
        request: The method.
        cells: Its cells, perhaps without the models that options name.
        found: Errors for these models. Those of a model that ``--set`` names stay errors of the run.
        texts: Names of its training texts.
        spec: The run.
        profile: Its profile.
    """
    suites = (suite for suite in spec.suites or profile.suites if measure_of(suite).needs_vectors)
    if (suite := next(suites, None)) and any(cell.lacks_vectors for cell in cells):
        return [InputError(f"no vectors, which suite '{suite}' needs", expected="a suite of pairs")]
    auxiliaries = {name.split(".")[-1] for name in METHODS.get(request.name).card.auxiliaries}
    given = {override.option for override in spec.overrides if override.method == request.name}
    errors = [] if given & auxiliaries else [*found]
    errors += find_missing_texts(texts, spec, profile)
    for lack in (lack for cell in cells[:1] for lack in find_missing_needs(cell)):
        hint = suggest_backbone(lack.need, lack.model)
        what = f"{lack.model.name} lacks {NEEDS[lack.need.what]}"
        errors.append(InputError(what, expected="another --backbone", hint=hint))
    if not errors:
        errors += _find_backbone_errors(
            cells[:1], check_adapters=not any(o.startswith("lora_") for o in given)
        )
    return errors


def _find_backbone_errors(cells: Sequence[Cell], *, check_adapters: bool) -> Iterator[InputError]:
    """Yield the first error for a backbone that a method, or its adapters, can't work with."""
    try:
        if check_adapters:
            check_lora(cells)
        for part in (part for cell in cells for part in cell.walk()):
            check_backbone(part)
    except InputError as error:
        error.where = ""
        yield error
