"""InfoCSE: SimCSE, and a small decoder that must restore masked words with the sentence vector's help."""

from __future__ import annotations

from bench.baselines._trained import ADAMW_EPS, TrainedApart, usual_options
from bench.baselines.diffcse import HEAD_OPTION
from bench.card import LAYERS, MLM_HEAD, MethodCard, Need, Option
from bench.registry import add_method
from bench.train.recipe import CLS_VIEWS


@add_method
class InfoCSE(TrainedApart):
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
            "the decoder's layers are fresh; the released code takes Condenser's head where it is at hand",
            "a batch without a masked token has no masked-LM loss, where the released mean is 0 / 0",
            "float32 throughout; the released run used fp16 autocast",
            "random replacements in masking are ordinary tokens; the released code may draw a special one",
            ADAMW_EPS,
        ),
        published_names=(("infocse", "as published: profile bert-base"),),
        auxiliaries=("mlm_head",),
    )
