"""What TNCSE and JTCSE share: the stages of a twin, its joint objective, its encoder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from bench import losses, nn, training
from bench.baselines.simcse import SimCSEObjective
from bench.card import OWN_NORMS, BuildContext, MethodCard, Need, Option, OptionValue
from bench.encoder import Encoder
from bench.errors import BenchError
from bench.lazy import torch
from bench.stages import SICK, TRAIN, StageContext, StageSpec
from bench.training.recipe import CLS_VIEWS, POOLING_OPTION, init_linear, training_options

SUB_VERSION = 1
TOWERS = (("sub1", "a"), ("sub2", "b"))
"""The two sub-encoders and the round-trip translated copy that each of them learns from."""

TERMS = ("nce", "icnce", "ictn")
"""Options that switch the joint loss's terms; without any, a twin is its sub-encoders' plain ensemble."""

TWIN_DEVIATIONS = (
    "each sub-encoder replaces the sentences by their translation; pairing isn't documented (our reading)",
    "published: trained on SICK's unlabelled sentences too, those of its test pairs among them, which "
    "sick=true adds; off by default",
    "sick=true adds them to the round-trip translated copies as they are, not translated",
    "the dev evaluation reads whole sentences; released: their first 64 tokens",
    "LTN is finite for zero vectors and for a cosine of exactly 0 or above 1, where the released code isn't",
)


TWIN_NEEDS = (*CLS_VIEWS, Need(OWN_NORMS, "drop_norms", (0,), unless=True, instead="drop_norms=0"))
TAU = Option("tau", 0.05, "temperature", minimum=1e-4)


def sub_options(*rates: float) -> tuple[Option, ...]:
    """Options of the two sub-encoders' stages, ``STAGE.NAME``."""
    return tuple(
        replace(option, name=f"{role}.{option.name}", help=f"{role}: {option.help}")
        for (role, _), lr in zip(TOWERS, rates, strict=True)
        for option in (TAU, *training_options(lr=lr, max_length=64, eval_every=100))
    )


NCE_FORM = Option(
    "nce_form",
    "released",
    "negatives: all other 2N - 2 rows (released) or the N - 1 of the other view (paper)",
    ("released", "paper"),
)
LTN_SCALE = Option("ltn_scale", 0.5, "factor of LTN: 0.5 released, 1 paper", minimum=0)
JOINT_OPTIONS = (
    Option("tau", 0.05, "temperature of all NCE terms", minimum=1e-4),
    Option("nce", True, "each tower's own NCE"),
    Option("icnce", True, "the NCE across the towers"),
    Option("ictn", True, "the tensor-norm loss LTN in both directions"),
    NCE_FORM,
    LTN_SCALE,
    Option(
        "ltn_angle",
        "cross",
        "cosine that weights LTN: between the two towers' views (released) or first views (paper)",
        ("cross", "paper"),
    ),
    Option(
        "rtt",
        "copies",
        "sub-encoders learn from round-trip translations, or (none) the text",
        ("copies", "none"),
    ),
    Option(
        "fresh_pooler",
        "one",
        "fresh poolers, where the backbone has none: both towers start from one, or each draws its own",
        ("one", "each"),
    ),
    POOLING_OPTION,
    Option("sick", False, "add SICK's unlabelled sentences to all training text"),
    Option(
        "drop_norms",
        0,
        "layers, from the last, whose LayerNorms are taken out in the joint stage; LTN is then on [CLS]",
        minimum=0,
    ),
    Option(
        "ltn_input", "pooler", "what LTN takes the norms of: the pooler's output, or [CLS]", ("pooler", "cls")
    ),
)
_ELSEWHERE = ("rtt", "sick", "pooling")  # the text that a stage sees, and what the encoder is asked for


def train_sub_encoder(context: StageContext) -> dict[str, Any]:
    """Unsupervised SimCSE on [CLS] itself: stage 1 takes the last hidden state alone, without a head."""
    tau = float(context.config["tau"])
    return training.train_sentence_encoder(
        context, lambda model, pad: SimCSEObjective(model, pad, tau, head=False)
    )


def mean_cls_norm(tower: tuple[Any, Any], context: StageContext) -> float:
    """Mean Euclidean norm of [CLS] over the first 100 training sentences (TNCSE, Figure 5)."""
    import numpy as np

    vectors = nn.TransformerEncoder(tower, "cls", device=context.device).encode(context.sentences[:100])
    return float(np.linalg.norm(vectors.astype(np.float64), axis=1).mean())


Config = Mapping[str, OptionValue]


Rows = Sequence[list[int]]


class JointObjective(training.Objective):
    """The joint loss of TNCSE (no CAELs) or JTCSE.

    L = NCE(H_I, H_I) + NCE(H_II, H_II) + ICNCE + LTN(I -> II) + LTN(II -> I) on [CLS] states H and pooler
    outputs P of two dropout views a sentence (TNCSE eq. 8, JTCSE eq. 15). ICNCE is NCE(H_I, H_II); with CAELs
    NCE(H_I, H_II) + NCE(c_I, c_II) or, with probability 1/2 a step, the same with the towers exchanged.

    Args:
        first: Tower I. Towers without poolers get fresh ones, for training alone: both start from one, as
            from a backbone's own, or (fresh_pooler=each) each draws its own.
        second: Tower II.
        pad_id: Padding id.
        config: The joint options.
        caels: Layers with cross-attention, from 1.
        coin: Generator of the run's own that draws the exchange; not touched without CAELs.
    """

    def __init__(
        self, first: Any, second: Any, pad_id: int, config: Config, caels: tuple[int, ...], coin: Any
    ) -> None:
        super().__init__()
        self.towers = torch.nn.ModuleList((first, second))
        self.poolers = torch.nn.ModuleList((pooler_layer(first), pooler_layer(second)))
        if config["fresh_pooler"] == "one" and has_no_pooler(first) and has_no_pooler(second):
            self.poolers[1].load_state_dict(self.poolers[0].state_dict())
        self.pad_id, self.config, self.caels, self.coin = pad_id, config, caels, coin

    def prepare(self, batch: Rows) -> tuple[nn.TokenBatch, bool]:
        """Both views of a sentence are rows one after the other; and whether the towers are exchanged."""
        tossed = bool(self.caels) and bool(self.config["icnce"])
        exchanged = tossed and bool(torch.rand((), generator=self.coin) < 0.5)
        return training.token_batch(repeat_each_row(batch), self.pad_id, self.towers[0]), exchanged

    def compute(self, prepared: tuple[nn.TokenBatch, bool]) -> torch.Tensor:
        """The terms that are switched on, added up."""
        tau, form = float(self.config["tau"]), str(self.config["nce_form"])
        tokens, exchanged = prepared
        first, second = self.towers
        cross_stream = str(self.config.get("cross_stream", "carry"))
        states = training.batch_twin_states(
            first, second, tokens, caels=self.caels, cross_stream=cross_stream
        )
        terms = []
        if self.config["nce"]:
            terms += [losses.tower_nce(states.first, tau, form), losses.tower_nce(states.second, tau, form)]
        if self.config["icnce"]:
            terms += _cross_losses(states, tau, form, exchanged=exchanged)
        if self.config["ictn"]:
            terms += self._norm_losses(states.first, states.second)
        return sum(terms, torch.zeros((), device=states.first.device))

    def _norm_losses(self, one: torch.Tensor, two: torch.Tensor) -> list[torch.Tensor]:
        scale, angle = float(self.config["ltn_scale"]), str(self.config["ltn_angle"])
        p_one, p_two = one, two
        if self.config.get("ltn_input", "pooler") == "pooler" and not self.config.get("drop_norms"):
            p_one, p_two = (torch.tanh(pooler(h)) for pooler, h in zip(self.poolers, (one, two), strict=True))
        return [
            losses.ltn(one, p_one, two, p_two, scale=scale, angle=angle),
            losses.ltn(two, p_two, one, p_one, scale=scale, angle=angle),
        ]


def _cross_losses(
    states: training.TwinClsStates, tau: float, form: str, *, exchanged: bool
) -> list[torch.Tensor]:
    pairs = [(states.first, states.second)]
    if states.cross_first is not None and states.cross_second is not None:
        pairs.append((states.cross_first, states.cross_second))
    return [
        losses.cross_nce(b, a, tau, form) if exchanged else losses.cross_nce(a, b, tau, form)
        for a, b in pairs
    ]


def repeat_each_row(rows: Rows) -> list[list[int]]:
    """Return both views of each sentence, one after the other."""
    return [row for row in rows for _ in range(2)]


def pooler_layer(model: Any) -> torch.nn.Module:
    """The pretrained pooler's linear layer, or a fresh one for a model without such a pooler."""
    linear: torch.nn.Module = (
        init_linear(nn.state_size(model)) if has_no_pooler(model) else model.pooler.dense
    )
    return linear


def has_no_pooler(model: Any) -> bool:
    """True for a model without a pooler of one dense layer, as BERT's is."""
    return not isinstance(getattr(getattr(model, "pooler", None), "dense", None), torch.nn.Linear)


class Twin:
    """Base of a method of two towers: a subclass adds the card."""

    card: MethodCard

    def caels(self, layers: int, config: Mapping[str, OptionValue]) -> tuple[int, ...]:
        """Layers with cross-attention between the towers, out of so many: none."""
        return ()

    def train(self, context: StageContext) -> dict[str, Any]:
        """The joint stage: both towers together, from the selected sub-encoders."""
        config = context.config
        towers = [
            nn.load_backbone(training.tower_folders(context.inputs[role], "selected")[0])
            for role, _ in TOWERS
        ]
        for model, _ in towers:
            nn.remove_layer_norms(model, int(config.get("drop_norms", 0)))
        coin = training.generator(context.seed, f"icnce/{context.role}")
        layers = self.caels(towers[0][0].config.num_hidden_layers, config)
        facts = training.train_towers(
            context,
            towers,
            lambda first, second, pad: JointObjective(first, second, pad, config, layers, coin),
        )
        # Of the last step's weights, not of the selected ones
        facts["mean_cls_norm"] = [mean_cls_norm(tower, context) for tower in towers]
        return facts

    def stages(self, options: Mapping[str, OptionValue]) -> tuple[StageSpec, ...]:
        """Both sub-encoders, then the joint stage, ``joint``, which needs at least one of its terms."""
        more = SICK if options["sick"] else ""
        subs = tuple(
            StageSpec(
                role,
                "sub_encoder",
                SUB_VERSION,
                tuple(
                    sorted((n.removeprefix(f"{role}."), options[n]) for n in options if n.startswith(role))
                ),
                train_sub_encoder,
                text=(copy if options["rtt"] == "copies" else TRAIN) + more,
            )
            for role, copy in TOWERS
        )
        if not any(options[term] for term in TERMS):
            return subs
        config = {
            name: value for name, value in options.items() if "." not in name and name not in _ELSEWHERE
        }
        if not config["drop_norms"]:
            del config["drop_norms"]  # an option that came after the first keys
        kind, version, settings = self.card.name, self.card.version, tuple(sorted(config.items()))
        roles = tuple(role for role, _ in TOWERS)
        joint = StageSpec("joint", kind, version, settings, self.train, inputs=roles, text=TRAIN + more)
        return (*subs, joint)

    def build(self, context: BuildContext) -> Encoder:
        """The sum of both towers' vectors: two plain encoders, without pooler or normalisation.

        Raises:
            BenchError: a stage has not run.
        """
        final = ["joint"] if any(context.options[term] for term in TERMS) else [role for role, _ in TOWERS]
        if missing := [role for role in final if role not in context.stages]:
            raise BenchError(f"the stage '{missing[0]}' has not run")
        folders = [
            path
            for role in final
            for path in training.tower_folders(context.stages[role], context.checkpoint)
        ]
        pooling, device = str(context.options["pooling"]), context.device
        towers = [
            nn.TransformerEncoder(path, pooling, first_layer="layer1", device=device) for path in folders
        ]
        if final == ["joint"]:
            for tower in towers:
                nn.remove_layer_norms(tower.model, int(context.options["drop_norms"]))
        return nn.SumEncoder(towers)
