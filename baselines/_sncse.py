"""What SNCSE trains: prompted views, and a negated sentence within two margins of the positive."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from bench.baselines._checks import check_alike
from bench.baselines.sncse import SPACY_MODEL
from bench.card import OptionValue
from bench.errors import BenchError
from bench.nn.architecture import state_size
from bench.nn.backbone import TransformerEncoder, load_backbone
from bench.nn.prompt import Prompt
from bench.nn.tokens import TokenBatch
from bench.stages import StageContext
from bench.train.chunks import batch_mask_states, token_batch
from bench.train.negation import folder_hash, negate_by_rule, spacy_folder, spacy_negation
from bench.train.objective import Objective
from bench.train.recipe import fresh_linear, info_nce
from bench.train.sentence_encoder import train_towers


def bidirectional_margin_loss(
    anchors: Tensor, positives: Tensor, negatives: Tensor, alpha: float, beta: float
) -> Tensor:
    """SNCSE's loss: a soft negative is less alike than the positive, by alpha at least and beta at most.

    D_i = cos(z_i, z^-_i) - cos(z_i, z^+_i); L = mean_i[relu(D_i + alpha) + relu(-D_i - beta)], 0 where D_i is
    within [-beta, -alpha]. Gradient flows through all three (Wang and Dou 2023, bidirectional margin loss).

    Args:
        anchors: z, (B, H).
        positives: z^+, (B, H).
        negatives: z^-, (B, H).
        alpha: Smallest difference.
        beta: Largest difference, at least alpha.

    Returns:
        Scalar, 0 to 2 + alpha.

    Raises:
        ValueError: different shapes, or alpha above beta.

    Example:
        >>> anchor, positive = torch.tensor([[1.0, 0.0]]), torch.tensor([[3.0, 4.0]])  # cosine 0.6
        >>> soft = torch.tensor([[4.0, 3.0]])  # 0.8: nearer than the positive, by 0.2
        >>> round(bidirectional_margin_loss(anchor, positive, soft, alpha=0.1, beta=0.3).item(), 4)
        0.3
        >>> bidirectional_margin_loss(anchor, soft, positive, alpha=0.1, beta=0.3).item()  # within both
        0.0
    """
    check_alike("(B, H)", anchors=anchors, positives=positives, negatives=negatives)
    if alpha > beta:
        raise ValueError(f"alpha {alpha} must be at most beta {beta}")
    a, p, n = (functional.normalize(x, dim=1, eps=1e-8) for x in (anchors, positives, negatives))
    difference = (a * n).sum(1) - (a * p).sum(1)
    return (functional.relu(difference + alpha) + functional.relu(-difference - beta)).mean()


class SNCSEObjective(Objective):
    """(Sentence number, token row) pairs to prompted InfoNCE and the weighted margin loss.

    Args:
        model: The transformer.
        tokenizer: Its tokenizer.
        context: The stage; its text is read in the templates here, so the token rows don't matter.
        negate: From a sentence to its negation.
    """

    def __init__(
        self, model: Any, tokenizer: Any, context: StageContext, negate: Callable[[str], str]
    ) -> None:
        super().__init__()
        config, self.sentences, self.negate = context.config, context.sentences, negate
        self.pad_id, self.mask_id = tokenizer.pad_token_id, tokenizer.mask_token_id
        own = copy.deepcopy(tokenizer)  # a dev evaluation may use the other one at the same time
        self.prompts = [Prompt(own, str(config[name])) for name in ("template", "template2")]
        self.tau, self.weight = float(config["tau"]), float(config["bml_weight"])
        self.alpha, self.beta = float(config["alpha"]), float(config["beta"])
        self.longest, self.unfinished = int(config["max_length"]), bool(config["negate_unfinished"])
        self.encoder = model
        self.head = fresh_linear(state_size(model))

    def prepare(self, batch: Sequence[tuple[int, list[int]]]) -> TokenBatch:
        """Anchors, positives and, unless they weigh nothing, soft negatives."""
        first, second = self.prompts
        texts = [self.sentences[number] for number, _ in batch]
        rows = [*first.rows(texts, self.longest), *second.rows(texts, self.longest)]
        if self.weight:
            rows += second.rows([self.negation(text) for text in texts], self.longest)
        return token_batch(rows, self.pad_id, self.encoder, once=False)

    def compute(self, prepared: TokenBatch) -> Tensor:
        """All of them go through one call."""
        projected = torch.tanh(self.head(batch_mask_states(self.encoder, prepared, self.mask_id)))
        anchors, positives, *soft = projected.chunk(3 if self.weight else 2)
        loss = info_nce(anchors, positives, self.tau)
        for negatives in soft:
            margins = bidirectional_margin_loss(anchors, positives, negatives, self.alpha, self.beta)
            loss = loss + self.weight * margins
        return loss

    def negation(self, text: str) -> str:
        """Released: the look-up of a sentence that had to be finished fails, so it gets a Not."""
        finished = self.prompts[0].finished(text)
        if finished != text and not self.unfinished:
            return f"Not {finished}"
        return self.negate(text)


def negation_of(config: Mapping[str, OptionValue]) -> tuple[Callable[[str], str], dict[str, Any]]:
    """Return the negation that a stage's settings ask for, and what the record should say of it.

    Raises:
        BenchError: the spaCy model's files aren't those that were planned with.
    """
    if config["negation"] == "rule":
        return negate_by_rule, {}
    folder = spacy_folder()
    if folder_hash(folder) != config[SPACY_MODEL]:
        raise BenchError("the files of the spaCy model changed since the run was planned")
    return spacy_negation(folder), {SPACY_MODEL: {"name": folder.name, "sha256": config[SPACY_MODEL]}}


def train(context: StageContext) -> dict[str, Any]:
    """Train with soft negatives: the stage.

    Argument and result are those of :func:`bench.train.sentence_encoder.train_towers`, which has more errors.

    Raises:
        BenchError: the spaCy model's files changed.
        InputError: a backbone without a mask token, or a template that leaves no room.
    """
    negate, facts = negation_of(context.config)
    tower = load_backbone(context.model)
    template = str(context.config["template"])
    prompted = TransformerEncoder(tower, "mask", template=template, device=context.device)
    trained = train_towers(
        replace(context, dev_score=lambda _: context.dev_score(prompted)),
        [tower],
        lambda model, _: SNCSEObjective(model, tower[1], context, negate),
        numbered=True,
    )
    return trained | facts
