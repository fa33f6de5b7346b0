"""Frozen teachers: encoders of other methods that give the similarities of a batch's sentences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from bench.encoder import Encoder
from bench.losses.contrastive import cosine_matrix
from bench.nn.two_phase_encoding import embed_prepared, prepare_sentences
from bench.training.distributed import deal_rows, gather_shares

KEPT_BYTES = 2**28


class TeacherQuery(NamedTuple):
    """A step's query to a teacher."""

    # the K sentences of the batch that lack a kept vector, this process's share, prepared; None for none
    new: Any
    place: Tensor  # new sentence i is row ``place[i]`` of the shares of all processes, (K,)
    keep: Tensor  # rows of the table that keep the first of the new ones
    rows: Tensor  # row of the table, or among the new ones, of each sentence of the batch, (B,)
    old: Tensor | None  # True for a row of the table, (B,); None where all are new


class Teacher:
    """A frozen encoder of the training text, which keeps the vectors of sentences that it has seen.

    ``kept_bytes`` limits the memory for vectors that may recur in a later epoch.
    """

    def __init__(self, encoder: Encoder, sentences: Sequence[str], kept_bytes: int = KEPT_BYTES) -> None:
        self.encoder, self.sentences = encoder, sentences
        self._room = min(kept_bytes // (4 * encoder.dim), len(sentences))
        self._rows: dict[int, int] = {}
        self._table: Tensor | None = None
        self._finite: Tensor | None = None

    def prepare(self, numbers: Sequence[int], device: torch.device | str) -> TeacherQuery:
        """Prepare the query for a batch's sentence numbers: the host's half of :meth:`vectors`."""
        if self._table is None:
            self._table = torch.empty(self._room, self.encoder.dim, device=device)
            self._finite = torch.ones((), dtype=torch.bool, device=device)
        new = [number for number in dict.fromkeys(numbers) if number not in self._rows]
        fresh = {number: row for row, number in enumerate(new)}
        rows = torch.tensor([fresh.get(number, self._rows.get(number)) for number in numbers])
        old = torch.tensor([number not in fresh for number in numbers])
        first = len(self._rows)
        keep = range(first, min(first + len(new), self._room))
        self._rows.update(zip(new, keep, strict=False))
        if not new:
            return TeacherQuery(None, rows, rows, rows, old)
        texts = [self.sentences[number] for number in new]
        share = deal_rows([len(text) for text in texts])
        prepared = prepare_sentences(self.encoder, [texts[i] for i in share.own])
        place, kept = torch.tensor(share.place), torch.tensor(keep, dtype=torch.long)
        return TeacherQuery(prepared, place, kept, rows, old if old.any() else None)

    @torch.no_grad()
    def vectors(self, asked: TeacherQuery) -> Tensor:
        """Return float32 (B, H_k), row i for sentence i of the batch, constant: the device's half.

        Queries must all come here, in the order of their preparation.
        """
        table, finite = self._table, self._finite
        if table is None or finite is None:
            raise ValueError("nothing was prepared")
        if asked.new is None:
            return table[asked.rows]
        new = gather_shares(embed_prepared(self.encoder, asked.new))[asked.place]
        finite &= new.isfinite().all()
        vectors = new[asked.rows.clamp(max=len(new) - 1)]
        if asked.old is not None:
            kept = table[asked.rows.clamp(max=len(table) - 1)]
            vectors = torch.where(asked.old.unsqueeze(1), kept, vectors)
        if len(asked.keep):
            table[asked.keep] = new[: len(asked.keep)]
        return vectors

    def why_not_finite(self) -> str | None:
        """Report an infinite vector as the cause of such a loss, if there was one; reads the device."""
        finite = self._finite is None or bool(self._finite)
        return None if finite else "a teacher's vectors are not finite"


def mix_cosines(vectors: Sequence[Tensor], weights: Sequence[float]) -> Tensor:
    """Return sum_k w_k cos(t^k_i, t^k_j), (B, B), of the teachers' (B, H_k): similarities are mixed."""
    mixed = [w * cosine_matrix(t, t) for t, w in zip(vectors, weights, strict=True)]
    return torch.stack(mixed).sum(0)
