"""Which layers of a twin are cross-attention layers, for plans too, which load no torch."""

from __future__ import annotations

from bench.errors import InputError


def list_cael_layers(layers: int, count: int) -> tuple[int, ...]:
    """Return the CAELs' positions, {j : 1 <= j <= L, j mod k = 0} with k = L / n; the last is layer L.

    Raises:
        InputError: a number other than a divisor of the layers.
    """
    if count == 0:
        return ()
    if count < 0 or layers % count:
        divisors = ", ".join(str(n) for n in range(1, layers + 1) if layers % n == 0)
        expected = f"one of 0, {divisors}"
        raise InputError(f"{count} cross-attention layers for {layers} layers", expected=expected)
    step = layers // count
    return tuple(range(step, layers + 1, step))
