"""The gradient paradigm: InfoNCE, ArcCon, MPT, MET, MAT, and the loss whose three components are options."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from functools import partial
from typing import Any

from bench import losses, nn, training
from bench.baselines.promptbert import build_prompted_encoder, train_prompted
from bench.encoder import Encoder
from bench.errors import InputError
from bench.lazy import torch
from bench.method_card import (
    DROPOUT,
    EMBEDDINGS,
    FIRST_TOKEN,
    MASK_TOKEN,
    OWN_NORMS,
    BuildContext,
    MethodCard,
    Need,
    Option,
    OptionValue,
)
from bench.methods.twin import Rows
from bench.registry import METHODS
from bench.stages import StageContext, StageSpec
from bench.training.encoder_options import OWN_POOLING, check_train_pooling, refuse_lora
from bench.training.recipe import TrainedOnce, usual_options

PairLoss = Callable[["torch.Tensor", "torch.Tensor"], "torch.Tensor"]
Config = Mapping[str, OptionValue]

_CONTRASTIVE = ("infonce", "arccon", "mpt", "met", "mat", "paradigm")
_OWN = "li-etal-2024-towards"
_CITES = {
    "arccon": ("zhang-etal-2022-contrastive",),
    **dict.fromkeys(("mpt", "met"), ("nie-etal-2023-inadequacy",)),
    **dict.fromkeys(("mhe", "mhs"), ("wang-isola-2020-understanding", "liu-etal-2021-learning")),
    "barlow": ("zbontar-etal-2021-barlow",),
    "vicreg": ("bardes-etal-2022-vicreg",),
}
_PRINTED = {
    **{"infonce": "InfoNCE", "arccon": "ArcCon", "mpt": "MPT", "met": "MET", "mhe": "MHE", "mhs": "MHS"},
    **{"barlow": "Barlow Twins", "vicreg": "VICReg", "m_mhe": "mMHE", "m_mhs": "mMHS"},
    **{"m_barlow": "mBarlow Twins", "m_vicreg": "mVICReg"},
}

PAPER = (
    "Li, Zhang, Nie 2024, Towards Better Understanding of Contrastive Sentence Representation Learning: "
    "A Unified Paradigm for Gradient"
)
TAU = Option("tau", 0.05, "temperature", minimum=1e-4)
FORM_OPTION = Option("form", "released", "the released code's loss or the paper's", ("released", "paper"))
_POOLER = Option(
    "pooler",
    "cls",
    "a sentence's vector, in training too: h_cls, the mean of the states (without a head) or the mask "
    "token's state in a prompt; only cls takes a pooling",
    ("cls", "avg", "mask"),
)
_NEEDS = (
    Need(FIRST_TOKEN, "pooler", ("cls",), instead="pooler=avg"),
    Need(MASK_TOKEN, "pooler", ("mask",), instead="pooler=cls"),
    Need(DROPOUT, "pooler", ("mask",), unless=True, instead="pooler=mask"),
    Need(EMBEDDINGS, "freeze_embeddings", (True,), instead="freeze_embeddings=false"),
    Need(OWN_NORMS, "freeze_layers", (0,), unless=True, instead="freeze_layers=0"),
)


def pair_card(
    name: str,
    summary: str,
    where: str,
    *,
    instead: str,
    equations: tuple[str, ...],
    options: tuple[Option, ...],
    deviations: tuple[str, ...],
    published_names: tuple[tuple[str, str], ...] = (),
    lr: float = 1e-5,
) -> MethodCard:
    """Card of a loss of the paper: its own equations, options and deviations, then the shared ones."""
    return MethodCard(
        name=name,
        printed=_PRINTED.get(name, ""),
        family="contrastive" if name in _CONTRASTIVE else "non-contrastive",
        instead=instead,
        cites=(_OWN, *_CITES.get(name.removeprefix("m_"), ())),
        tags=("dropout views",),
        passes=6.0,
        kind="method",
        summary=summary,
        version=1,
        paper=f"{PAPER}, {where}",
        code="BDBC-KG-NLP/UnderstandingCSE 93075dc",
        equations=(
            *equations,
            "at inference h_cls of the last layer, or another pooler's output, without the head",
        ),
        needs=_NEEDS,
        options=(
            *options,
            Option(
                "head_input",
                "cls",
                "input of the training-only linear head: h_cls (BERT) or its tanh (RoBERTa)",
                ("cls", "tanh"),
            ),
            _POOLER,
            Option("freeze_embeddings", True, "the embedding layer is frozen"),
            Option("freeze_layers", 0, "first layers that are frozen too", minimum=0),
            *usual_options(lr=lr, batch_size=128),
        ),
        deviations=(
            *deviations,
            "loss and normalisation are computed in float64 from the float32 head",
            "pooler=mask, released: BERT's second view masks the prompt's full stop and so reads the state "
            "of 'means'; here the mask token's, as in the first view, at inference and for RoBERTa",
        ),
        published_names=published_names,
    )


HEAD_STD = 6e-3
# released prompts of both views with the pooler mask; the first is inference's too
TEMPLATES = ('This sentence : "{sentence}" means{mask} .', 'This sentence of "{sentence}" means{mask} .')


class PairObjective(training.Objective):
    """A loss of two views, l2-normalised after a linear head of the pooler's output, or of its tanh.

    The head is Linear(d, d), weights and bias normal with std 6e-3; the pooler avg has none. The views are
    two dropout masks, and with the pooler mask two prompts. The loss gets unit rows (N, d) in float64.
    """

    def __init__(
        self,
        encoder: Any,
        pad_id: int,
        config: Config,
        loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
        prompts: PromptedViews | None = None,
    ) -> None:
        super().__init__()
        layers = int(config.get("freeze_layers", 0))
        _freeze_layers(encoder, embeddings=bool(config["freeze_embeddings"]), layers=layers)
        self.encoder, self.pooler = encoder, str(config.get("pooler", "cls"))
        self.head: torch.nn.Linear | None = None
        if self.pooler != "avg":
            self.head = torch.nn.Linear(nn.state_size(encoder), nn.state_size(encoder))
            for parameter in self.head.parameters():
                torch.nn.init.normal_(parameter, std=HEAD_STD)
        self.pad_id, self.head_input, self.loss = pad_id, config["head_input"], loss
        self.prompts = prompts

    def prepare(self, batch: Sequence[Any]) -> nn.TokenBatch:
        """Put both views into one call."""
        if self.prompts is None:
            return training.token_batch([*batch, *batch], self.pad_id, self.encoder)
        return training.token_batch(self.prompts.rows(batch), self.pad_id, self.encoder, once=False)

    def compute(self, prepared: nn.TokenBatch) -> torch.Tensor:
        """Compute the loss of the two views in float64."""
        if self.prompts is None:
            states = training.batch_states(self.encoder, prepared, self.pooler)
        else:
            states = training.batch_mask_states(self.encoder, prepared, self.prompts.mask_id)
        if self.head is not None:
            states = self.head(torch.tanh(states) if self.head_input == "tanh" else states)
        # e^(s/tau) leaves float32's range at the grid's smallest tau
        unit = torch.nn.functional.normalize(nn.to_float64(states), dim=1, eps=1e-8)
        return self.loss(*unit.chunk(2))


class PromptedViews:
    """A text in the prompts of two views: ``longest`` tokens of a sentence, ``room`` the model's limit."""

    def __init__(self, tokenizer: Any, sentences: Sequence[str], longest: int, room: int) -> None:
        own = copy.deepcopy(tokenizer)  # a dev evaluation may use the other one meanwhile
        self._prompts = [nn.Prompt(own, template) for template in TEMPLATES]
        self._sentences, self._longest, self.mask_id = sentences, longest - 2, own.mask_token_id
        if longest > (most := room - max(prompt.length for prompt in self._prompts) + 2):
            message = f"max_length {longest} and the prompt exceed the model's longest input"
            raise InputError(message, expected=f"a max_length up to {most}")

    def rows(self, batch: Sequence[tuple[int, list[int]]]) -> Rows:
        """Token rows of all first views, then of all second ones; only the numbers of the pairs are read."""
        texts = [self._sentences[number] for number, _ in batch]
        rows = []
        for prompt in self._prompts:
            rows += prompt.rows(texts, prompt.length + self._longest)
        return rows


def _freeze_layers(encoder: Any, *, embeddings: bool, layers: int) -> None:
    """Freeze the embeddings and the first layers."""
    if embeddings:
        part = getattr(encoder, "embeddings", getattr(encoder, "embed_tokens", None))
        if not isinstance(part, torch.nn.Module):
            message = f"{type(encoder).__name__} has no layer of embeddings"
            raise InputError(message, hint="set freeze_embeddings=false")
        part.requires_grad_(False)
    if layers:
        stack = nn.transformer_layers(encoder)
        if layers >= len(stack):
            raise _too_many_error(layers, len(stack))
        for layer in stack[:layers]:
            layer.requires_grad_(False)


def _too_many_error(asked: int, layers: int) -> InputError:
    return InputError(f"freeze_layers {asked}", expected=f"fewer than the model's {layers} layers")


class PairMethod(TrainedOnce):
    """A method that trains one encoder with a loss of two views, made from its name and options."""

    def __init__(self, card: MethodCard, loss: Callable[[str, Config], PairLoss]) -> None:
        self.card, self.loss = card, loss

    def train(self, context: StageContext) -> dict[str, Any]:
        """Train with the loss of two views, as :func:`bench.training.train_towers`."""
        config, tower = context.config, nn.load_backbone(context.model)
        loss, pooler = self.loss(self.card.name, config), str(config.get("pooler", "cls"))
        if pooler != "mask":
            return training.train_towers(
                context, [tower], lambda model, pad: PairObjective(model, pad, config, loss), pooling=pooler
            )
        dev = nn.TransformerEncoder(tower, "mask", template=TEMPLATES[0], device=context.device)
        prompts = PromptedViews(tower[1], context.sentences, int(config["max_length"]), dev.max_length)
        pad_id = tower[1].pad_token_id
        return train_prompted(
            context, tower, dev, lambda model: PairObjective(model, pad_id, config, loss, prompts)
        )

    def check_backbone(self, facts: Any, options: Mapping[str, OptionValue]) -> None:
        """Refuse to freeze every layer of a backbone."""
        asked, layers = int(options["freeze_layers"]), facts.layers
        if layers is not None and asked >= layers:
            raise _too_many_error(asked, layers)

    def stages(self, options: Mapping[str, OptionValue]) -> tuple[StageSpec, ...]:
        """Describe the one stage; InputError: a pooling with a pooler that has its own."""
        if options["pooler"] != "cls" and options["pooling"] != "cls":
            message = f"pooling {options['pooling']} with pooler {options['pooler']}"
            raise InputError(message, where=self.card.name, expected="a pooling only with pooler=cls")
        if (pooler := str(options["pooler"])) != "cls":
            why = f"with pooler={pooler}, which is the vector in training too"
            check_train_pooling(self.card.name, options, (pooler,), why)
            options = {**options, "train_pooling": OWN_POOLING}
        if options["freeze_layers"]:
            reason = "all layers are frozen under adapters, so freeze_layers has no effect"
            refuse_lora(options, self.card.name, reason, "freeze_layers=0, and lora_targets in its place")
        return super().stages(options)

    def build(self, context: BuildContext) -> Encoder:
        """Return the encoder of the asked checkpoint: its pooler's output, without the head."""
        pooler = str(context.options["pooler"])
        if pooler == "cls":
            return super().build(context)
        context = replace(context, options={**context.options, "pooling": pooler})
        if pooler == "avg":
            return super().build(context)
        return build_prompted_encoder(context, self.card.name, TEMPLATES[0])


def select_fields(kind: type, config: Config) -> dict[str, Any]:
    """Return the options that are fields of a dataclass."""
    return {field.name: config[field.name] for field in fields(kind) if field.name in config}


def contrastive_loss(name: str, config: Config) -> PairLoss:
    """Return the loss of a method of this module, with its options."""
    module = losses.paradigm_losses
    given = select_fields(module.Paradigm, config)
    if "u" in given:
        given["u"] = math.radians(float(given["u"]))
    if name != "paradigm":
        return partial(module.PLAIN_LOSSES[name], **given)
    return partial(module.paradigm_loss, parts=module.Paradigm(**given), form=str(config["form"]))


_ANGLE = Option("u", 10.0, "ArcCon's angular margin in degrees", minimum=0, maximum=180)
_OTHER_SETUP = (
    "a linear head and a frozen embedding layer, as in that paper, differ from the loss's own set-up"
)
_CARDS = (
    pair_card(
        "infonce",
        "InfoNCE in the gradient paradigm's set-up",
        "eq. 1",
        instead="the same loss, with frozen embeddings and a linear head (the gradient paradigm's set-up)",
        equations=("L = mean_i -log(e^(s_ii/tau) / sum_j e^(s_ij/tau)), s_ij = h_i . h'_j",),
        options=(TAU,),
        deviations=(f"{_OTHER_SETUP} (SimCSE's, whose published score the paper repeats, is simcse)",),
    ),
    pair_card(
        "arccon",
        "InfoNCE with an angular margin on the positive, in the gradient paradigm's set-up",
        "eq. 2; Zhang et al. 2022 (ArcCSE)",
        instead="InfoNCE with an angular margin on the positive; frozen embeddings and a linear head",
        equations=(
            "L = mean_i -log(e^(cos(theta_ii + u)/tau) / "
            "(e^(cos(theta_ii + u)/tau) + sum_{j != i} e^(s_ij/tau))), theta_ii = arccos s_ii",
        ),
        options=(TAU, _ANGLE),
        deviations=(
            "the cosine under the angle is held within +-(1 - 1e-6), where the released gradient is infinite",
            f"{_OTHER_SETUP} (arccse[triplet=false] has a tanh head)",
        ),
    ),
    pair_card(
        "mpt",
        "the triplet loss on inner products against the hardest negative",
        "eq. 3; Nie, Zhang, Mao 2023",
        instead="a triplet loss; the positive's cosine is to exceed the hardest negative's by a margin",
        equations=("L = mean_i relu(max_{j != i} s_ij - s_ii + m)",),
        options=(Option("m", 0.23, "margin"),),
        deviations=(_OTHER_SETUP,),
    ),
    pair_card(
        "met",
        "the triplet loss on Euclidean distances against the hardest negative",
        "eq. 3; Nie, Zhang, Mao 2023",
        instead="a triplet loss; the positive is to be nearer than the hardest negative by a margin",
        equations=("L = mean_i relu(D_ii - min_{j != i} D_ij + m), D_ij^2 = max(2 - 2 s_ij, 1e-4)",),
        options=(Option("m", 0.45, "margin"),),
        deviations=(
            "the printed inner max, and the indicator of appendix D.1, are misprints; Table 1 is right",
            "where D^2 is held at 1e-4 the gradient is that at the bound; released: 0",
            _OTHER_SETUP,
        ),
    ),
    pair_card(
        "mat",
        "the triplet loss on angles against the hardest negative",
        "the released code's third triplet loss, unprinted",
        instead="a triplet loss; the positive's angle is to be smaller than the hardest negative's",
        equations=("L = mean_i relu(theta_ii - min_{j != i} theta_ij + m pi), theta_ij = arccos s_ij",),
        options=(Option("m", 0.15, "margin in units of pi"),),
        deviations=(
            "the cosine under the angle is held within +-(1 - 1e-6), where the released gradient is infinite",
            _OTHER_SETUP,
        ),
    ),
    pair_card(
        "paradigm",
        "the gradient paradigm's loss: gradient dissipation, weight and ratio are options",
        "eq. 4 and 5, Table 1",
        instead="a loss given by its gradient; whose anchors count, negatives weigh and positives pull",
        equations=(
            "L_i = GD_i sum_{j != i} W_ij (s_ij - R_ij s_ii) in both directions, GD, W and R constant",
            "baseline: GD = 1[s_ii - max_{k != i} s_ik < m], W = softmax over j != i of s_ij/tau, R = ratio",
        ),
        options=(
            Option(
                "gd",
                "indicator",
                "gradient dissipation: the baseline's, or a loss's of Table 1",
                ("indicator", "infonce", "arccon", "mpt", "met", "none"),
            ),
            Option(
                "w",
                "softmax",
                "weight: the baseline's, InfoNCE's (over tau), MPT's, MET's, equal, or max(s, 1e-4)^power",
                ("softmax", "infonce", "hardest", "met", "uniform", "power"),
            ),
            Option("r", "static", "ratio: the option ratio, ArcCon's or MET's", ("static", "arccon", "met")),
            Option("m", 0.3, "margin of gd=indicator"),
            Option("mpt_m", 0.23, "margin of gd=mpt"),
            Option("met_m", 0.45, "margin of gd=met"),
            TAU,
            Option("ratio", 1.0, "value of r=static; released: half of what acts on an anchor", minimum=0),
            _ANGLE,
            Option("power", 1.0, "exponent of w=power", minimum=0),
            FORM_OPTION,
        ),
        deviations=(
            "released: the positive pair carries gradient to both views, so an anchor kept in both "
            "directions has twice the ratio; a dropped one with a kept partner is pulled (form=paper: eq. 4)",
            "a direction without a kept anchor counts 0 (released: NaN)",
            "the reduction, unprinted in the paper, is the mean over the 2N anchors",
        ),
        published_names=(("empirical_baseline", "as published: profile bert-base"),),
    ),
)

for _card in _CARDS:
    METHODS.register(_card.name, PairMethod(_card, contrastive_loss), __name__)
