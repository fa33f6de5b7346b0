"""Unsupervised SimCSE: two dropout views of a sentence against the rest of its batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, NamedTuple

from bench import losses, nn, training
from bench.lazy import torch
from bench.method_card import MLM_HEAD, MethodCard, Need, Option, OptionValue
from bench.registry import add_method
from bench.stages import StageContext, StageSpec
from bench.training.encoder_options import ENCODER_OPTIONS, PROMPTLESS, check_train_pooling
from bench.training.recipe import (
    ADAMW_EPS,
    CLS_VIEWS,
    POOLING_OPTION,
    TEXT_OPTION,
    TRAINING_OPTIONS,
    TrainedOnce,
    init_linear,
)


class SimCSEObjective(training.Objective):
    """Token rows to InfoNCE between two dropout views, under the training-only tanh head.

    With ``partners`` (EDFSE) it takes (sentence number, token row) pairs, and the second view is the
    partner's. ``head=False`` compares the [CLS] states themselves (TNCSE's sub-encoders).
    """

    def __init__(
        self,
        model: Any,
        pad_id: int,
        tau: float,
        *,
        head: bool = True,
        partners: nn.IndexedRows | None = None,
    ) -> None:
        super().__init__()
        self.encoder, self.pad_id, self.tau, self.partners = model, pad_id, tau, partners
        self.head: Any = init_linear(nn.state_size(model)) if head else None

    def prepare(self, batch: Sequence[Any]) -> Any:
        """Put both views into one call; without partners they differ only by their dropout masks."""
        if self.partners is None:
            return training.token_batch([*batch, *batch], self.pad_id, self.encoder)
        rows = [row for _, row in batch]
        rows += [self.partners[number] for number, _ in batch]
        return training.token_batch(rows, self.pad_id, self.encoder)

    def compute(self, prepared: Any) -> torch.Tensor:
        """InfoNCE between the first views and the second ones."""
        anchors, positives = self.views(prepared)
        return losses.info_nce(anchors, positives, self.tau)

    def views(self, tokens: nn.TokenBatch) -> tuple[torch.Tensor, torch.Tensor]:
        """Compute the compared vectors of both views, (B, H) each."""
        projected = training.batch_states(self.encoder, tokens)
        if self.head is not None:
            projected = torch.tanh(self.head(projected))
        first, second = projected.chunk(2)
        return first, second


class ExtendedStep(NamedTuple):
    """Inputs of a step: both views, their masked copies or None, Gaussian negatives (M, H) or None."""

    tokens: nn.TokenBatch
    gaps: training.MaskedRows | None
    noise: torch.Tensor | None


class ExtendedObjective(SimCSEObjective):
    """SimCSE with a masked-LM term on its encoder (an untied head), gsInfoNCE's noise negatives, or both."""

    def __init__(self, model: Any, tokenizer: Any, context: StageContext, lm_head: Any) -> None:
        config, role = context.config, context.role
        super().__init__(model, tokenizer.pad_token_id, float(config["tau"]))
        self.tokenizer, self.lm_head = tokenizer, lm_head
        self.weight, self.share = float(config["mlm_term"]), float(config["mlm_share"])
        self.count = int(config["noise_negatives"])
        self.size = nn.state_size(model)
        self.masks = training.generator(context.seed, f"mask/{role}")
        self.draws = training.generator(context.seed, f"noise/{role}")

    def prepare(self, batch: Sequence[Any]) -> ExtendedStep:
        """Prepare the views, mask each separately, and draw the step's noise."""
        gaps = noise = None
        if self.count:
            noise = torch.randn(self.count, self.size, generator=self.draws)
        if self.lm_head is not None:
            chunk = nn.pad_chunk([*batch, *batch], self.pad_id, masked=self.device.type == "cuda")
            masked = training.mask_text(chunk.ids, self.tokenizer, self.share, self.masks)
            gaps = training.MaskedRows(chunk._replace(ids=masked.inputs), masked.places, masked.targets)
        return ExtendedStep(super().prepare(batch), gaps, noise)

    def compute(self, prepared: ExtendedStep) -> torch.Tensor:
        """InfoNCE, whose noise only anchors meet, and the weighted masked-LM loss."""
        anchors, positives = self.views(prepared.tokens)
        noise = None if prepared.noise is None else prepared.noise.to(anchors.dtype)
        loss = losses.queue_nce(anchors, positives, noise, self.tau)
        return loss if prepared.gaps is None else loss + self.weight * self.restoration(prepared.gaps)

    def restoration(self, gaps: training.MaskedRows) -> torch.Tensor:
        """Masked-LM loss of both views' masked copies, read by the encoder itself."""
        with training.autocast_towers(gaps.places.device):
            states = nn.compute_last_states(self.encoder, gaps.chunk)
        masked = training.to_float32(states).flatten(0, 1)[gaps.places]
        return losses.masked_lm_loss(self.lm_head(masked), gaps.targets)


@add_method
class SimCSE(TrainedOnce):
    """Unsupervised SimCSE."""

    whole_batch: ClassVar[Mapping[str, float]] = {"mlm_term": 0.0}
    card = MethodCard(
        name="simcse",
        printed="SimCSE",
        family="contrastive",
        cites=(
            "gao-etal-2021-simcse",
            "wu-etal-2022-smoothed",
        ),
        tags=("dropout views",),
        passes=6.0,
        kind="baseline",
        summary="unsupervised SimCSE: dropout views, InfoNCE, [CLS]",
        version=1,
        paper="Gao, Yao, Chen 2021, SimCSE: Simple Contrastive Learning of Sentence Embeddings, eq. 4",
        code="princeton-nlp/SimCSE 49fa580; caskcsg/sentemb 5eeec55, gsInfoNCE",
        equations=(
            "z = tanh(W h_cls + b) in training; S_ij = cos(z_i, z'_j) / tau; L = mean_i -log softmax(S_i)_i",
            "mlm_term w: L + w mean over masked tokens CE(V(E(mask(x; q))), the token), over both views",
            "noise_negatives M: L = mean_i -log softmax([S_i ; cos(z_i, g_k) / tau])_i, g_1...g_M ~ N(0, I)",
            "at inference h_cls of the last layer, without the head",
        ),
        needs=(*CLS_VIEWS, Need(MLM_HEAD, "mlm_term", (0.0,), unless=True, instead="mlm_term=0")),
        options=(
            Option("tau", 0.05, "temperature", minimum=1e-4),
            *TRAINING_OPTIONS,
            Option("mlm_term", 0.0, "w, weight of a masked-LM term (released: off, 0.1 where on)", minimum=0),
            Option("mlm_share", 0.15, "q, share of tokens masked for it", minimum=0, maximum=1),
            Option(
                "noise_negatives",
                0,
                "M, Gaussian vectors that are every anchor's negatives: gsInfoNCE (released there: 192)",
                minimum=0,
            ),
            Option("match", "", "a method whose stages' total sentences it sees, in place of steps"),
            TEXT_OPTION,
            POOLING_OPTION,
            *ENCODER_OPTIONS,
        ),
        deviations=(
            "float32 throughout; the released run used fp16 autocast",
            "masked-LM term: V starts from the backbone's own masked-LM head, as released; a batch without "
            "masked tokens skips it (released: 0 / 0)",
            "gsInfoNCE: released with dropout 0.2 for bert-base, and with lr 1e-5 and batches of 64 for "
            "roberta-base; the noise's deviation (0.5 and 0.1) cancels in the cosine",
            ADAMW_EPS,
        ),
        published_names=(("simcse", "as published: profile bert-base or roberta-base"),),
        known_as=(("gsinfonce", "simcse[noise_negatives=192]"),),
    )

    def stages(self, options: Mapping[str, OptionValue]) -> tuple[StageSpec, ...]:
        """Describe the one stage; InputError: a prompt's mask with a masked-LM term."""
        if options["mlm_term"]:
            why = "has the prompt among the masked tokens"
            check_train_pooling(self.card.name, options, PROMPTLESS, why, expected="mlm_term=0 with it")
        return super().stages(options)

    def train(self, context: StageContext) -> dict[str, Any]:
        """Train on two dropout views with the chosen terms, as :func:`bench.training.train_towers`."""
        config, tau = context.config, float(context.config["tau"])
        with_mlm = bool(config.get("mlm_term"))
        if not (with_mlm or config.get("noise_negatives")):
            return training.train_sentence_encoder(context, partial(SimCSEObjective, tau=tau))
        head = nn.copy_mlm_head(nn.load_masked_lm(context.model)[0]) if with_mlm else None
        tower = nn.load_backbone(context.model)
        return training.train_towers(
            context, [tower], lambda model, _: ExtendedObjective(model, tower[1], context, head)
        )
