"""Conformance of a training: gradients, a loss that falls, dropout; one trial training of all stages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any

import numpy as np

from bench.conformance.check_registry import NoCaseError, register_check
from bench.conformance.encoder_checks import SENTENCES
from bench.conformance.subject import STEPS, Subject
from bench.encoder import Encoder

if TYPE_CHECKING:
    from torch import nn

    from bench.conformance.training_trial import StageTrial

_CLOSE = 1e-4  # largest rounding difference, relative to the largest component
_FEWEST = 3  # batches for a test
_RISES = 4.03  # standard errors by which a loss rises: p = 0.005, two-sided, with 8 batches
_KEPT, _COLLAPSED = 0.75, 0.3  # of the views' separation
_APART = 0.01  # by which the cosine of a sentence's views falls
_MOST_NAMED = 3


@register_check("gradients", "train")
def check_gradients(subject: Subject) -> str | None:
    """Gradients that reach every weight that the vectors depend on.

    Advice: take no detach() or torch.no_grad() around the encoder, use each weight in the loss, or freeze
    it with requires_grad_(False).
    """
    trials = _list_trials(subject)
    built = subject.trial.encoder()
    for trial in trials:
        idle = [
            name
            for name, value in trial.parameters.items()
            if value.requires_grad and (trial.peaks[name] == 0 or name in trial.still)
        ]
        encoders = [trial.evaluated, built]
        used = {name for encoder in encoders for name in _find_used_weights(trial, idle, encoder)}
        missing = [name for name in idle if name in used]
        if missing:
            return _describe_missing_gradients(trial, missing)
        if trial.kept <= trial.still:
            return f"stage '{trial.role}' changes none of the weights that are kept"
    return None


def _list_trials(subject: Subject) -> Sequence[StageTrial]:
    """Return the trials of a method's stages; raises NoCaseError where none trains in bench's loop."""
    subject.trial.folders()
    if not subject.trial.trials:
        raise NoCaseError("no stage of its own trains in the loop of bench.training")
    return subject.trial.trials


def _find_used_weights(trial: StageTrial, names: Sequence[str], encoder: object) -> Iterator[str]:
    """Yield the names of trained weights whose change moves an encoder's vectors."""
    import torch

    if not names or not isinstance(encoder, Encoder):
        return
    before = encoder.encode(list(SENTENCES), None, None)
    weights = [value for module in _find_modules(encoder) for value in module.parameters()]
    for name in names:
        trained = trial.parameters[name]
        for value in (value for value in weights if value is trained or _is_equal(value, trained)):
            first = value.detach().clone()
            noise = torch.randn(value.shape, generator=torch.Generator().manual_seed(1))
            with torch.no_grad():
                value.add_((first.std(correction=0) + 0.1) * noise)
                after = encoder.encode(list(SENTENCES), None, None)
                value.copy_(first)
            if np.abs(after - before).max() > _CLOSE * np.abs(before).max():
                yield name


def _is_equal(value: nn.Parameter, trained: nn.Parameter) -> bool:
    import torch

    return value.shape == trained.shape and torch.equal(value.detach(), trained.detach())


def _find_modules(value: Any, depth: int = 3) -> Iterator[nn.Module]:
    """Yield the torch modules among an object's attributes, and theirs."""
    from torch import nn

    if isinstance(value, nn.Module):
        yield value
    elif depth and isinstance(value, list | tuple | dict):
        for entry in value.values() if isinstance(value, dict) else value:
            yield from _find_modules(entry, depth - 1)
    elif depth and hasattr(value, "__dict__"):
        for entry in vars(value).values():
            yield from _find_modules(entry, depth - 1)


def _describe_missing_gradients(trial: StageTrial, missing: Sequence[str]) -> str:
    listed = ", ".join(missing[:_MOST_NAMED])
    if len(missing) > _MOST_NAMED:
        listed += f" and {len(missing) - _MOST_NAMED} more"
    if all(trial.peaks[name] > 0 for name in missing):
        return f"stage '{trial.role}' doesn't train {listed}: no attribute of its objective holds them"
    learnable = [name for name in trial.kept if trial.parameters[name].requires_grad]
    whole = "the encoder is detached: " if len(missing) > len(learnable) / 2 else ""
    return f"{whole}in {STEPS} steps of stage '{trial.role}' no gradient reaches {listed}"


@register_check("loss", "train")
def check_falling_loss(subject: Subject) -> str | None:
    """A loss that falls on a tiny text, and views of a sentence that stay closer than other sentences.

    Advice: look for a wrong sign, a term that cancels another, or a rate of zero.
    """
    trials = [trial for trial in _list_trials(subject) if trial.before]
    if not trials:
        raise NoCaseError(subject.trial.trials[0].problem)
    for trial in trials:
        if verb := _describe_change(trial):
            means = f"{fmean(trial.before):.4g} to {fmean(trial.after):.4g}"
            return f"in {STEPS} steps of stage '{trial.role}' the loss {verb}: {means}, mean of fixed batches"
        if trial.views is not None and (seen := _describe_direction(trial)):
            return seen
    return None


def _describe_change(trial: StageTrial) -> str:
    """Return "stays" or "rises" for a loss that doesn't fall, by a paired t test over batches, or ""."""
    changes = [after - before for before, after in zip(trial.before, trial.after, strict=True)]
    if not any(changes):
        return "stays"
    if len(changes) < _FEWEST:
        return "rises" if min(changes) > 0 else ""
    error = stdev(changes) / len(changes) ** 0.5
    return "rises" if fmean(changes) > _RISES * error else ""


def _describe_direction(trial: StageTrial) -> str | None:
    """Describe a training that moves views of one sentence apart, or all sentences together."""
    assert trial.views is not None  # noqa: S101 - the caller checks it
    first, last = trial.views
    kept = last.separation / first.separation if first.separation > 0 else 1.0
    apart = last.same < first.same - _APART and kept < _KEPT
    if not apart and kept >= _COLLAPSED:
        return None
    cosines = f"{first.same:.2f} and {first.other:.2f}, then {last.same:.2f} and {last.other:.2f}"
    result = "moves the two views of a sentence apart" if apart else "moves all sentences together"
    return f"stage '{trial.role}' {result} (cosine of views and of other sentences {cosines})"


@register_check("dropout", "train")
def check_dropout_views(subject: Subject) -> str | None:
    """Two views of a sentence that differ where a step encodes the same tokens twice.

    Advice: set the option dropout above 0, and leave the encoder in training mode.
    """
    trials = _list_trials(subject)
    if not any(trial.views for trial in trials):
        raise NoCaseError(trials[0].problem or "no step encodes the same tokens twice")
    for trial in trials:
        if trial.views is not None and trial.views[0].identical == 1:
            return f"equal views in training of stage '{trial.role}': {trial.idle_dropout}"
    return None
