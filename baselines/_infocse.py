"""What InfoCSE trains: a small decoder that restores masked words with the sentence vector's help."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from bench.baselines._diffcse import training_head
from bench.errors import InputError
from bench.nn.backbone import load_backbone, padded
from bench.nn.masked_lm import (
    check_layers,
    check_same_vocabulary,
    load_masked_lm,
    mlm_head,
    new_layers,
    run_layers,
)
from bench.stages import StageContext
from bench.train.chunks import cls_states
from bench.train.masking import mask_tokens
from bench.train.precision import lowered, widened
from bench.train.recipe import info_nce
from bench.train.sentence_encoder import set_dropout, train_towers
from bench.train.streams import generator


def lower_half(model: Any, *, dropout: bool = False) -> Any:
    """Return a frozen copy of a transformer's lower L // 2 layers, as the model is now.

    Args:
        model: BertModel or RobertaModel of L layers.
        dropout: Keep its dropout probabilities, so that it is active in training.

    Raises:
        InputError: a single layer, which has no lower half.
    """
    half = len(model.encoder.layer) // 2
    if half == 0:
        raise InputError("the lower half of a transformer of one layer", expected="two layers or more")
    frozen = copy.deepcopy(model)
    frozen.encoder.layer = nn.ModuleList(frozen.encoder.layer[:half])
    frozen.pooler = None
    if not dropout:
        set_dropout(frozen, 0.0)
    return frozen.requires_grad_(False)


def masked_lm_loss(logits: Tensor, targets: Tensor) -> Tensor:
    """Cross-entropy over the masked tokens, mean_k -log softmax(logits_k)_{targets_k}; 0 where there is none.

    Args:
        logits: (K, V), of the K masked tokens.
        targets: (K,), their original ids.

    Returns:
        Scalar, at least 0. Without a masked token the released mean is 0 / 0.

    Raises:
        ValueError: shapes that don't fit.

    Example:
        >>> logits = torch.tensor([[0.0, 0.0], [0.0, 3.0]]).log1p()  # probabilities 1/2 and 1/2, 1/5 and 4/5
        >>> round(masked_lm_loss(logits, torch.tensor([1, 1])).item(), 4)
        0.4581
    """
    if logits.ndim != 2 or targets.shape != logits.shape[:1]:
        raise ValueError(
            f"logits {tuple(logits.shape)} and targets {tuple(targets.shape)} must be (K, V) and (K,)"
        )
    return functional.cross_entropy(logits, targets) if len(targets) else logits.sum()


class InfoCSEObjective(nn.Module):
    """Token rows to InfoNCE on the head's output plus a weighted masked-LM loss.

    Trained: the encoder, the head, the decoder A (fresh layers) and the masked-LM head V. Frozen: a copy of
    the encoder's lower half as it is now. The decoder sees masked tokens as the frozen half encodes them, and
    in place of their first state the clean sentence's vector: the only way from the loss to the encoder.

    Args:
        model: The transformer, a BertModel or RobertaModel.
        tokenizer: Its tokenizer.
        lm_head: V, states (K, H) to logits (K, vocabulary); trained, tied to nothing.
        context: The stage: its options, and the stream of what is masked.
    """

    def __init__(self, model: Any, tokenizer: Any, lm_head: Any, context: StageContext) -> None:
        super().__init__()
        check_layers(model)
        config, self.tokenizer = context.config, tokenizer
        self.config, self.masks = config, generator(context.seed, f"mask/{context.role}")
        self.encoder = model
        self.head = training_head(model.config.hidden_size, str(config["head"]))
        self.frozen = lower_half(model, dropout=bool(config["frozen_dropout"]))
        self.decoder = new_layers(model, int(config["decoder_layers"]))
        set_dropout(self.decoder, float(config["dropout"]))
        self.lm_head = lm_head

    def forward(self, rows: list[list[int]]) -> Tensor:
        """Both views, all first ones before all second ones."""
        views, weight = [*rows, *rows], float(self.config["mlm_weight"])
        states = cls_states(self.encoder, views, self.tokenizer.pad_token_id)
        projected = self.head(states)
        loss = info_nce(projected[: len(rows)], projected[len(rows) :], float(self.config["tau"]))
        return loss + weight * self.restoration(views, states) if weight else loss

    def restoration(self, views: list[list[int]], vectors: Tensor) -> Tensor:
        """Masked-LM loss of all rows; ``vectors`` is (2B, H)."""
        ids, mask = padded(views, self.tokenizer.pad_token_id, str(vectors.device))
        masked, chosen = mask_tokens(ids, self.tokenizer, float(self.config["mask"]), self.masks)
        with torch.no_grad(), lowered(mask.device):
            states = self.frozen(input_ids=masked, attention_mask=mask).last_hidden_state
        states = torch.cat([vectors.unsqueeze(1), widened(states[:, 1:])], dim=1)
        with lowered(mask.device):
            states = widened(run_layers(self.decoder, states, mask, self.encoder.config))
        return masked_lm_loss(self.lm_head(states[chosen]), ids[chosen])


def train(context: StageContext) -> dict[str, Any]:
    """Train with the contrastive loss and the reconstruction from [CLS]: the stage.

    Argument and result are those of :func:`bench.train.sentence_encoder.train_towers`, which has more errors.

    Raises:
        InputError: a masked-LM head that can't be loaded or has another vocabulary; a backbone of one layer.
    """
    tower = load_backbone(context.model)
    pretrained, vocabulary = load_masked_lm(context.auxiliaries["mlm_head"])
    check_same_vocabulary(tower[1], vocabulary, where=f"mlm_head {context.config['mlm_head']}")
    head = mlm_head(pretrained)
    return train_towers(context, [tower], lambda model, _: InfoCSEObjective(model, tower[1], head, context))
