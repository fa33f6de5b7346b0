"""What SimCSE trains: two dropout views of each sentence through one call of the transformer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from bench.baselines._esimcse import queue_nce
from bench.baselines._infocse import Gaps, masked_lm_loss
from bench.nn.architecture import state_size
from bench.nn.attention import last_states
from bench.nn.backbone import Rows, load_backbone
from bench.nn.masked_lm import load_masked_lm, mlm_head
from bench.nn.tokens import TokenBatch, chunk_of
from bench.stages import StageContext
from bench.train.chunks import batch_states, token_batch
from bench.train.masking import masked_text
from bench.train.objective import Objective
from bench.train.precision import lowered, widened
from bench.train.recipe import fresh_linear, info_nce
from bench.train.sentence_encoder import train_sentence_encoder, train_towers
from bench.train.streams import generator


class SimCSEObjective(Objective):
    """Token rows to InfoNCE between two dropout views, under the training-only tanh head.

    With partners it takes (sentence number, token row) pairs, and the second view is the partner's.

    Args:
        model: The transformer.
        pad_id: Padding id.
        tau: Temperature.
        head: False compares the [CLS] states themselves (TNCSE's sub-encoders).
        partners: Token row of each sentence's translation (EDFSE).
    """

    def __init__(
        self, model: Any, pad_id: int, tau: float, *, head: bool = True, partners: Rows | None = None
    ) -> None:
        super().__init__()
        self.encoder, self.pad_id, self.tau, self.partners = model, pad_id, tau, partners
        self.head: Any = fresh_linear(state_size(model)) if head else None

    def prepare(self, batch: Sequence[Any]) -> Any:
        """Both views go through one call, so without partners they differ by their dropout masks alone."""
        rows = [*batch, *batch]
        if self.partners is not None:
            rows = [*(row for _, row in batch), *(self.partners[number] for number, _ in batch)]
        return token_batch(rows, self.pad_id, self.encoder)

    def compute(self, prepared: Any) -> Tensor:
        """InfoNCE between the first views and the second ones."""
        anchors, positives = self.views(prepared)
        return info_nce(anchors, positives, self.tau)

    def views(self, tokens: TokenBatch) -> tuple[Tensor, Tensor]:
        """What is compared of both views, (B, H) each."""
        projected = batch_states(self.encoder, tokens)
        if self.head is not None:
            projected = torch.tanh(self.head(projected))
        first, second = projected.chunk(2)
        return first, second


class Extended(NamedTuple):
    """What a step with a further term reads.

    Args:
        tokens: Both views.
        gaps: Their masked copies; None without a masked-LM term.
        noise: Gaussian negatives, (M, H); None without any.
    """

    tokens: TokenBatch
    gaps: Gaps | None
    noise: Tensor | None


class ExtendedObjective(SimCSEObjective):
    """SimCSE with a masked-LM term on its encoder, with gsInfoNCE's noise among the negatives, or with both.

    Args:
        model: The transformer.
        tokenizer: Its tokenizer.
        context: The stage: its options, and the streams of masks and noise.
        lm_head: States (K, H) to logits (K, vocabulary), trained, tied to nothing; None without the term.
    """

    def __init__(self, model: Any, tokenizer: Any, context: StageContext, lm_head: Any) -> None:
        config, role = context.config, context.role
        super().__init__(model, tokenizer.pad_token_id, float(config["tau"]))
        self.tokenizer, self.lm_head = tokenizer, lm_head
        self.weight, self.share = float(config["mlm_term"]), float(config["mlm_share"])
        self.count = int(config["noise_negatives"])
        self.size = state_size(model)
        self.masks, self.draws = (generator(context.seed, f"{name}/{role}") for name in ("mask", "noise"))

    def prepare(self, batch: Sequence[Any]) -> Extended:
        """The views; each is masked apart from the other, and each step has noise of its own."""
        gaps = noise = None
        if self.count:
            noise = torch.randn(self.count, self.size, generator=self.draws)
        if self.lm_head is not None:
            chunk = chunk_of([*batch, *batch], self.pad_id, masked=self.device.type == "cuda")
            masked = masked_text(chunk.ids, self.tokenizer, self.share, self.masks)
            gaps = Gaps(chunk._replace(ids=masked.inputs), masked.places, masked.targets)
        return Extended(super().prepare(batch), gaps, noise)

    def compute(self, prepared: Extended) -> Tensor:
        """InfoNCE, where anchors alone meet the noise, and the weighted masked-LM loss."""
        anchors, positives = self.views(prepared.tokens)
        noise = None if prepared.noise is None else prepared.noise.to(anchors.dtype)
        loss = queue_nce(anchors, positives, noise, self.tau)
        return loss if prepared.gaps is None else loss + self.weight * self.restoration(prepared.gaps)

    def restoration(self, gaps: Gaps) -> Tensor:
        """Masked-LM loss of both views' masked copies, which the encoder itself reads."""
        with lowered(gaps.places.device):
            states = last_states(self.encoder, gaps.chunk)
        return masked_lm_loss(self.lm_head(widened(states).flatten(0, 1)[gaps.places]), gaps.targets)


def train(context: StageContext) -> dict[str, Any]:
    """Train with InfoNCE over two dropout views, and with the terms that the options switch on: the stage.

    Argument and result are those of :func:`bench.train.sentence_encoder.train_towers`, which has more errors.

    Raises:
        InputError: a masked-LM term, and the backbone has no masked-LM head.
    """
    config, tau = context.config, float(context.config["tau"])
    with_mlm = bool(config.get("mlm_term"))
    if not (with_mlm or config.get("noise_negatives")):
        return train_sentence_encoder(context, lambda model, pad_id: SimCSEObjective(model, pad_id, tau))
    head = mlm_head(load_masked_lm(context.model)[0]) if with_mlm else None
    tower = load_backbone(context.model)
    return train_towers(context, [tower], lambda model, _: ExtendedObjective(model, tower[1], context, head))
