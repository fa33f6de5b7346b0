"""Batches of sentences of like length, under a budget of padded tokens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

CPU_BATCH_TOKENS = 1024  # fastest of 256 to 8,192 for MiniLM on one and two threads
CUDA_BATCH_TOKENS = 65_536
MPS_BATCH_TOKENS = 16_384  # a quarter of CUDA's, as a Mac's GPU shares its memory with the CPU; not measured
BUCKET = 8  # padded lengths on a GPU are multiples of it: few shapes, for compiled steps and graphs


def default_batch_tokens(device: str) -> int:
    """Padded tokens a batch may hold on a device."""
    budgets = {"cuda": CUDA_BATCH_TOKENS, "mps": MPS_BATCH_TOKENS}
    return budgets.get(device.partition(":")[0], CPU_BATCH_TOKENS)


def length_sorted_batches(lengths: Sequence[int], budget: int, *, equal: bool = False) -> Iterator[list[int]]:
    """Yield lists of indices: rising length, each list at most ``budget`` padded tokens, or one sentence.

    Ties keep their order, so the batches depend on nothing but the lengths and the budget.

    Args:
        lengths: Tokens of each sentence, specials included.
        budget: Largest product of batch size and longest length; at least 1.
        equal: Put sentences of one length alone together, so that nothing is padded.
    """
    batch: list[int] = []
    for index in sorted(range(len(lengths)), key=lengths.__getitem__):
        longer = equal and batch and lengths[index] > lengths[batch[0]]
        if longer or (batch and lengths[index] * (len(batch) + 1) > budget):
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch
