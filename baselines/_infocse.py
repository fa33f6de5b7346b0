"""What InfoCSE trains: a small decoder that restores masked words with the sentence vector's help."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from bench.baselines._diffcse import training_head
from bench.errors import InputError
from bench.nn.attention import attention_mask, last_states, run_layers
from bench.nn.backbone import load_backbone
from bench.nn.dropout import set_dropout
from bench.nn.masked_lm import check_layers, check_same_vocabulary, load_masked_lm, mlm_head, new_layers
from bench.nn.tokens import Chunk, TokenBatch, chunk_of
from bench.stages import StageContext
from bench.train.chunks import batch_states, token_batch
from bench.train.masking import masked_text
from bench.train.objective import Objective
from bench.train.precision import lowered, widened
from bench.train.recipe import info_nce
from bench.train.sentence_encoder import train_towers
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


class Gaps(NamedTuple):
    """Rows with masked tokens, padded to the longest.

    Args:
        chunk: What the frozen half reads, (2B, L).
        places: The masked tokens, as positions in the flattened (2B L), (K,).
        targets: Their ids, (K,).
    """

    chunk: Chunk
    places: Tensor
    targets: Tensor


class InfoCSEObjective(Objective):
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

    def prepare(self, batch: Sequence[list[int]]) -> tuple[TokenBatch, Gaps | None]:
        """Both views, all first ones before all second ones; and their masked copies."""
        views, pad_id = [*batch, *batch], self.tokenizer.pad_token_id
        tokens = token_batch(views, pad_id, self.encoder)
        if not self.config["mlm_weight"]:
            return tokens, None
        chunk = chunk_of(views, pad_id, masked=self.device.type == "cuda")
        masked = masked_text(chunk.ids, self.tokenizer, float(self.config["mask"]), self.masks)
        return tokens, Gaps(chunk._replace(ids=masked.inputs), masked.places, masked.targets)

    def compute(self, prepared: tuple[TokenBatch, Gaps | None]) -> Tensor:
        """InfoNCE of the heads' outputs, and the restoration from the states before it."""
        tokens, gaps = prepared
        states = batch_states(self.encoder, tokens)
        projected = self.head(states)
        first, second = projected.chunk(2)
        loss = info_nce(first, second, float(self.config["tau"]))
        return (
            loss if gaps is None else loss + float(self.config["mlm_weight"]) * self.restoration(gaps, states)
        )

    def restoration(self, gaps: Gaps, vectors: Tensor) -> Tensor:
        """Masked-LM loss of all rows; ``vectors`` is (2B, H)."""
        config, chunk = self.encoder.config, gaps.chunk
        with torch.no_grad(), lowered(vectors.device):
            states = last_states(self.frozen, chunk)
        states = torch.cat([vectors.unsqueeze(1), widened(states[:, 1:])], dim=1)
        with lowered(vectors.device):
            mask = attention_mask(config, chunk, states.dtype)
            states = widened(run_layers(self.decoder, states, mask))
        return masked_lm_loss(self.lm_head(states.flatten(0, 1)[gaps.places]), gaps.targets)


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
