"""Probes: what a score doesn't say of an encoder, and of a training text against test sets."""

from __future__ import annotations

from bench.errors import InputError, unknown

PROBES = {
    "alignment": "mean squared distance of pairs of like meaning, unit vectors",
    "uniformity": "log of the mean of exp(-2 d^2) over all pairs of distinct sentences, unit vectors",
    "cls_energy": "norm of [CLS] in the context tensors against that of all other tokens, by layer",
    "attention_sink": "share of the attention on [CLS], [SEP], final punctuation and the rest, by layer",
    "density": "densities of the cosines by gold score, and how far neighbouring ones overlap",
    "modulus": "norms of [CLS] and of the pooler's output",
    "isotropy": "effective rank, mean cosine, deviation and spectrum of the vectors",
    "cost": "multiply-accumulates at 64 tokens, parameters, sentences a second, peak memory",
}
"""What ``bench probe`` measures of an encoder."""


def parse_probes(text: str) -> tuple[str, ...]:
    """Parse ``--probes``: ``all``, or names with commas between them.

    Returns:
        The names in the order of :data:`PROBES`.

    Raises:
        InputError: an unknown name, or one that is given twice.
    """
    names = [name.strip() for name in text.split(",")]
    if names == ["all"]:
        return tuple(PROBES)
    for name in names:
        if name not in PROBES:
            raise unknown("probe", name, ("all", *PROBES), where="--probes")
    if len(set(names)) < len(names):
        raise InputError(f"'{text}' names a probe twice", where="--probes")
    return tuple(name for name in PROBES if name in names)
