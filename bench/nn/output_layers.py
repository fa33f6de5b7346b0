"""Choices of a transformer's layers by number, checked in the plan and when a model is loaded."""

from __future__ import annotations

from bench.errors import InputError


def check_output_layer(layer: int, layers: int) -> None:
    """Raise InputError unless ``layer``, counted from the end (-1 the last), is one of ``layers`` layers.

    >>> check_output_layer(-2, 12)
    """
    if not -layers <= layer <= -1:
        raise InputError(f"output_layer {layer}", expected=f"-1 to -{layers}, the model's layers")


def check_prepended_layers(start: int, end: int, layer: int, layers: int) -> None:
    """Raise InputError where no layer from ``start`` to ``end`` (exclusive) changes the state at ``layer``.

    Vectors would then be those without Token Prepending.

    Args:
        start: First layer before which a state is put, from 0.
        end: First layer without; beyond the last for all.
        layer: Layer of the states, as for :func:`check_output_layer`.
        layers: Number of layers of the model.
    """
    check_output_layer(layer, layers)
    if start >= end:
        raise InputError(f"start {start} and end {end}", expected="a first layer before the end")
    last = layers + layer
    if start > last:
        what = f"start {start}: the model has {layers} layer{'s' if layers > 1 else ''}"
        if layer < -1:
            what += f", and output_layer {layer} is layer {last}, counted from 0"
        raise InputError(what, expected=f"start from 0 to {last}" if last else "start=0")
