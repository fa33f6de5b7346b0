"""InfoCSE: SimCSE, and a small decoder that must restore masked words with the sentence vector's help."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from bench.baselines.diffcse import HEAD_OPTION, training_head
from bench.card import BuildContext, MethodCard, Option, OptionValue
from bench.encoder import Encoder
from bench.errors import InputError
from bench.registry import add_method
from bench.stages import StageContext, StageSpec
from bench.train.recipe import (
    POOLING_OPTION,
    TEXT_OPTION,
    info_nce,
    one_stage,
    trained_encoder,
    training_options,
)

if TYPE_CHECKING:
    import torch
    from torch import Tensor


def lower_half(model: Any, *, dropout: bool = False) -> Any:
    """Return a frozen copy of a transformer's lower L // 2 layers, as the model is now.

    Args:
        model: BertModel or RobertaModel of L layers.
        dropout: Keep its dropout probabilities, so that it is active in training.

    Raises:
        InputError: a single layer, which has no lower half.
    """
    import copy

    from torch import nn

    from bench.train.sentence_encoder import set_dropout

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
    """
    from torch.nn import functional

    if logits.ndim != 2 or targets.shape != logits.shape[:1]:
        raise ValueError(
            f"logits {tuple(logits.shape)} and targets {tuple(targets.shape)} must be (K, V) and (K,)"
        )
    return functional.cross_entropy(logits, targets) if len(targets) else logits.sum()


def make_infocse_objective(
    model: Any, tokenizer: Any, lm_head: Any, config: Mapping[str, OptionValue], masks: torch.Generator
) -> Any:
    """Return the module: token rows to InfoNCE on the head's output plus a weighted masked-LM loss.

    Trained: the encoder, the head, the decoder A (fresh layers) and the masked-LM head V. Frozen: a copy of
    the encoder's lower half as it is now. The decoder sees masked tokens as the frozen half encodes them, and
    in place of their first state the clean sentence's vector: the only way from the loss to the encoder.

    Args:
        model: The transformer, a BertModel or RobertaModel.
        tokenizer: Its tokenizer.
        lm_head: V, states (K, H) to logits (K, vocabulary); trained, tied to nothing.
        config: The method's options.
        masks: Draws which tokens are masked.
    """
    import torch
    from torch import nn

    from bench.nn.backbone import padded
    from bench.nn.masked_lm import check_layers, new_layers, run_layers
    from bench.train.chunks import cls_states
    from bench.train.masking import mask_tokens
    from bench.train.precision import lowered, widened
    from bench.train.sentence_encoder import set_dropout

    check_layers(model)
    tau, weight = float(config["tau"]), float(config["mlm_weight"])
    pad_id = tokenizer.pad_token_id

    class Objective(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = model
            self.head = training_head(model.config.hidden_size, str(config["head"]))
            self.frozen = lower_half(model, dropout=bool(config["frozen_dropout"]))
            self.decoder = new_layers(model, int(config["decoder_layers"]))
            set_dropout(self.decoder, float(config["dropout"]))
            self.lm_head = lm_head

        def forward(self, rows: list[list[int]]) -> Tensor:
            """Both views, all first ones before all second ones."""
            views = [*rows, *rows]
            states = cls_states(model, views, pad_id)
            projected = self.head(states)
            loss = info_nce(projected[: len(rows)], projected[len(rows) :], tau)
            return loss + weight * self.restoration(views, states) if weight else loss

        def restoration(self, views: list[list[int]], vectors: Tensor) -> Tensor:
            """Masked-LM loss of all rows; ``vectors`` is (2B, H)."""
            ids, mask = padded(views, pad_id, str(vectors.device))
            masked, chosen = mask_tokens(ids, tokenizer, float(config["mask"]), masks)
            with torch.no_grad(), lowered(mask.device):
                states = self.frozen(input_ids=masked, attention_mask=mask).last_hidden_state
            states = torch.cat([vectors.unsqueeze(1), widened(states[:, 1:])], dim=1)
            with lowered(mask.device):
                states = widened(run_layers(self.decoder, states, mask, model.config))
            return masked_lm_loss(self.lm_head(states[chosen]), ids[chosen])

    return Objective()


def train_infocse(context: StageContext) -> dict[str, Any]:
    """Train with the contrastive loss and the reconstruction from [CLS]: the stage.

    Argument and result as of :func:`bench.train.sentence_encoder.train_towers`, which has further errors.

    Raises:
        InputError: a masked-LM head that can't be loaded or has another vocabulary; a backbone of one layer.
    """
    from bench.nn.backbone import load_backbone
    from bench.nn.masked_lm import check_same_vocabulary, load_masked_lm, mlm_head
    from bench.train.sentence_encoder import train_towers
    from bench.train.streams import generator

    tower = load_backbone(context.model)
    pretrained, vocabulary = load_masked_lm(context.auxiliaries["mlm_head"])
    check_same_vocabulary(tower[1], vocabulary, where=f"mlm_head {context.config['mlm_head']}")
    head = mlm_head(pretrained)
    masks = generator(context.seed, f"mask/{context.role}")
    return train_towers(
        context,
        [tower],
        lambda model, _: make_infocse_objective(model, tower[1], head, context.config, masks),
    )


@add_method
class InfoCSE:
    """InfoCSE."""

    card = MethodCard(
        name="infocse",
        kind="baseline",
        summary="InfoCSE: SimCSE and masked words restored with the sentence vector's help",
        version=1,
        paper="Wu et al. 2022, InfoCSE: Information-aggregated Contrastive Learning of Sentence Embeddings",
        code="caskcsg/sentemb 5eeec55, folder InfoCSE",
        equations=(
            "h = E(x)[0]; z, z' = BN2(W2 ReLU(BN1(W1 h))) of each view, statistics over both views",
            "u = V(A([h ; F(mask(x; q))_1..L-1])), F the backbone's frozen lower half, A two fresh layers",
            "L = mean_i -log softmax_j(cos(z_i, z'_j) / tau)_i + w mean over masked tokens CE(u, the token)",
            "at inference h of the last layer, without the head",
        ),
        options=(
            Option("tau", 0.05, "temperature", minimum=1e-4),
            HEAD_OPTION,
            Option(
                "mlm_head",
                "backbone",
                "model whose masked-LM head V starts from: a model folder, a hub name, or backbone",
            ),
            Option("mask", 0.4, "q, share of tokens that are masked", minimum=0),
            Option("mlm_weight", 1e-5, "w, weight of the masked-LM loss; 0: none", minimum=0),
            Option("decoder_layers", 2, "layers of the decoder A", minimum=1),
            Option("frozen_dropout", False, "the frozen half's dropout is active (the large script's way)"),
            *training_options(lr=7e-6, epochs=2),
            TEXT_OPTION,
            POOLING_OPTION,
        ),
        deviations=(
            "starts from the backbone; the released run starts from a Condenser checkpoint of bert-base",
            "the decoder's layers are fresh; the released code takes Condenser's head where it is at hand",
            "a batch without a masked token has no masked-LM loss, where the released mean is 0 / 0",
            "float32 throughout; the released run used fp16 autocast",
            "random replacements in masking are ordinary tokens; the released code may draw a special one",
        ),
        published_names=(("infocse", "as published: profile bert-base"),),
        auxiliaries=("mlm_head",),
    )

    def stages(self, options: Mapping[str, OptionValue]) -> tuple[StageSpec, ...]:
        """One stage."""
        return one_stage(self.card, options, train_infocse)

    def build(self, context: BuildContext) -> Encoder:
        """Return the encoder of the asked checkpoint."""
        return trained_encoder(context, "infocse")
