"""InfoCSE: SimCSE, and a small decoder that must restore masked words with the sentence vector's help."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from bench import losses, nn, training
from bench.baselines.diffcse import HEAD_OPTION, build_training_head
from bench.errors import InputError
from bench.lazy import torch
from bench.method_card import LAYERS, MLM_HEAD, MethodCard, Need, Option, OptionValue
from bench.registry import add_method
from bench.stages import StageContext, StageSpec
from bench.training.encoder_options import PROMPTLESS, check_train_pooling
from bench.training.recipe import ADAMW_EPS, CLS_VIEWS, TrainedOnce, usual_options


def check_halves(half: int) -> None:
    """Raise InputError for a transformer whose lower half has no layer."""
    if half == 0:
        raise InputError("the transformer has only one layer", expected="two layers or more")


def copy_lower_half(model: Any, *, dropout: bool = False) -> Any:
    """Return a frozen copy of a transformer's lower L // 2 layers; ``dropout`` keeps its probabilities."""
    half = len(nn.list_layers(model)) // 2
    check_halves(half)
    frozen = copy.deepcopy(model)
    nn.keep_lower_layers(frozen, half)
    frozen.pooler = None
    if not dropout:
        nn.set_dropout(frozen, 0.0)
    return frozen.requires_grad_(False)


class InfoCSEObjective(training.Objective):
    """Token rows to InfoNCE on the head's output plus a weighted masked-LM loss.

    Trained: the encoder, the head, the decoder A (fresh layers) and the untied masked-LM head V. Frozen: a
    copy of the encoder's lower half as it is now. The decoder sees masked tokens as the frozen half encodes
    them, and in place of their first state the clean sentence's vector: the only way from the loss to the
    encoder. Where norms precede the blocks, the decoder ends with a fresh final norm. Relative positions
    are those of the frozen copy.
    """

    def __init__(self, model: Any, tokenizer: Any, lm_head: Any, context: StageContext) -> None:
        super().__init__()
        nn.check_callable_layers(model)
        config, self.tokenizer = context.config, tokenizer
        self.config, self.masks = config, training.generator(context.seed, f"mask/{context.role}")
        self.encoder = model
        self.head = build_training_head(model.config.hidden_size, str(config["head"]))
        self.half = len(nn.list_layers(model)) // 2
        self.frozen = copy_lower_half(model, dropout=bool(config["frozen_dropout"]))
        self.decoder = nn.init_layers(model, int(config["decoder_layers"]))
        self.decoder_norm = nn.init_final_norm(model)
        nn.set_dropout(self.decoder, float(config["dropout"]))
        self.lm_head = lm_head

    def prepare(self, batch: Sequence[list[int]]) -> tuple[nn.TokenBatch, training.MaskedRows | None]:
        """Put all first views before all second ones; mask their copies."""
        views, pad_id = [*batch, *batch], self.tokenizer.pad_token_id
        tokens = training.token_batch(views, pad_id, self.encoder)
        if not self.config["mlm_weight"]:
            return tokens, None
        chunk = nn.pad_chunk(views, pad_id, masked=self.device.type == "cuda")
        masked = training.mask_text(chunk.ids, self.tokenizer, float(self.config["mask"]), self.masks)
        return tokens, training.MaskedRows(chunk._replace(ids=masked.inputs), masked.places, masked.targets)

    def compute(self, prepared: tuple[nn.TokenBatch, training.MaskedRows | None]) -> torch.Tensor:
        """Add InfoNCE of the head's outputs and the restoration from the states before it."""
        tokens, gaps = prepared
        states = training.batch_states(self.encoder, tokens)
        projected = self.head(states)
        first, second = projected.chunk(2)
        loss = losses.info_nce(first, second, float(self.config["tau"]))
        if gaps is None:
            return loss
        return loss + float(self.config["mlm_weight"]) * self.restoration(gaps, states)

    def restoration(self, gaps: training.MaskedRows, vectors: torch.Tensor) -> torch.Tensor:
        """Masked-LM loss of all rows; ``vectors`` is (2B, H)."""
        chunk, lower = gaps.chunk, nn.list_layers(self.frozen)[: self.half]
        with torch.no_grad(), training.autocast_towers(vectors.device):
            states = nn.compute_embeddings(self.frozen, chunk)
            states = nn.run_given_layers(self.frozen, lower, states, chunk)
        states = torch.cat([vectors.unsqueeze(1), training.to_float32(states[:, 1:])], dim=1)
        with training.autocast_towers(vectors.device):
            states = self.decoder_norm(nn.run_given_layers(self.frozen, self.decoder, states, chunk))
            states = training.to_float32(states)
        return losses.masked_lm_loss(self.lm_head(states.flatten(0, 1)[gaps.places]), gaps.targets)


@add_method
class InfoCSE(TrainedOnce):
    """InfoCSE."""

    whole_batch: ClassVar[Mapping[str, float]] = {"mlm_weight": 0.0}
    card = MethodCard(
        name="infocse",
        printed="InfoCSE",
        family="denoising",
        adds="a small network that restores masked words from lower layers and the sentence vector",
        cites=("wu-etal-2022-infocse",),
        tags=("dropout views", "masked LM"),
        passes=8.7,
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
        needs=(*CLS_VIEWS, Need(LAYERS), Need(MLM_HEAD, of="mlm_head")),
        options=(
            Option("tau", 0.05, "temperature", minimum=1e-4),
            HEAD_OPTION,
            Option(
                "mlm_head",
                "backbone",
                "model whose masked-LM head V starts from: a model folder, a hub name, or backbone",
            ),
            Option("mask", 0.4, "q, share of tokens that are masked", minimum=0, maximum=1),
            Option("mlm_weight", 1e-5, "w, weight of the masked-LM loss; 0: none", minimum=0),
            Option("decoder_layers", 2, "layers of the decoder A", minimum=1),
            Option("frozen_dropout", False, "the frozen half's dropout is active (the large script's way)"),
            *usual_options(lr=7e-6, epochs=2),
        ),
        deviations=(
            "starts from the backbone; the released run starts from Luyu/condenser, a bert-base that was "
            "pretrained further so that [CLS] holds the sentence (--backbone takes its folder)",
            "the decoder's layers are fresh; the released code takes Condenser's head if available",
            "a batch without a masked token skips the masked-LM loss (released: 0 / 0)",
            "float32 throughout; the released run used fp16 autocast",
            "random replacements in masking are ordinary tokens; the released code may draw a special one",
            ADAMW_EPS,
        ),
        published_names=(("infocse", "as published: profile bert-base"),),
        auxiliaries=("mlm_head",),
    )

    def check_backbone(self, facts: Any, options: Mapping[str, OptionValue]) -> None:
        """Raise InputError, in the plan, for a backbone of one layer."""
        if facts.layered and facts.layers is not None:
            check_halves(facts.layers // 2)

    def stages(self, options: Mapping[str, OptionValue]) -> tuple[StageSpec, ...]:
        """Describe the one stage; InputError: a prompt's mask with the masked-LM loss."""
        if options["mlm_weight"]:
            why = "has the prompt among the masked tokens"
            check_train_pooling(self.card.name, options, PROMPTLESS, why, expected="mlm_weight=0 with it")
        return super().stages(options)

    def train(self, context: StageContext) -> dict[str, Any]:
        """Train with the contrastive loss and the reconstruction, as :func:`bench.training.train_towers`."""
        tower = nn.load_backbone(context.model)
        pretrained, vocabulary = nn.load_masked_lm(context.auxiliaries["mlm_head"])
        nn.check_same_vocabulary(tower[1], vocabulary, where=f"mlm_head {context.config['mlm_head']}")
        head = nn.copy_mlm_head(pretrained)
        return training.train_towers(
            context, [tower], lambda model, _: InfoCSEObjective(model, tower[1], head, context)
        )
