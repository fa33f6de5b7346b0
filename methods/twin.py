"""What TNCSE and JTCSE share: the stages of a twin, its joint objective, its encoder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from bench import losses, nn, training
from bench.baselines.simcse import SimCSEObjective
from bench.encoder import Encoder
from bench.errors import BenchError
from bench.lazy import torch
from bench.method_card import OWN_NORMS, BuildContext, MethodCard, Need, Option, OptionValue
from bench.stages import SICK, TRAIN, StageContext, StageSpec
from bench.training.encoder_options import ENCODER_OPTIONS, find_train_pooling
from bench.training.recipe import CLS_VIEWS, POOLING_OPTION, init_linear, training_options

SUB_VERSION = 1
# the two sub-encoders, and the round-trip translated copy that each of them learns from
TOWERS = (("sub1", "a"), ("sub2", "b"))
TERMS = ("nce", "icnce", "ictn")  # of the joint loss; without any, a twin is its sub-encoders' plain ensemble
Config = Mapping[str, OptionValue]
Rows = Sequence[list[int]]
TWIN_DEVIATIONS = (
    "each sub-encoder replaces the sentences by their translation (our reading; undocumented)",
    "published: trained on SICK's unlabelled sentences too, with those of its test pairs (sick=true; off by "
    "default)",
    "sick=true adds them untranslated to the round-trip translated copies",
    "the dev evaluation reads whole sentences; released: their first 64 tokens",
    "LTN is finite for zero vectors and for a cosine of 0 or above 1 (released: infinite or NaN)",
)
TWIN_NEEDS = (*CLS_VIEWS, Need(OWN_NORMS, "drop_norms", (0,), unless=True, instead="drop_norms=0"))
TAU = Option("tau", 0.05, "temperature", minimum=1e-4)


def sub_options(*rates: float) -> tuple[Option, ...]:
    """Options of the two sub-encoders' stages, ``STAGE.NAME``."""
    options = []
    for (role, _), lr in zip(TOWERS, rates, strict=True):
        for option in (TAU, *training_options(lr=lr, max_length=64, eval_every=100)):
            options.append(replace(option, name=f"{role}.{option.name}", help=f"{role}: {option.help}"))
    return tuple(options)


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
        "poolers of a backbone without one: both towers start from one, or each draws its own",
        ("one", "each"),
    ),
    POOLING_OPTION,
    *ENCODER_OPTIONS,
    Option("sick", False, "add SICK's unlabelled sentences to all training text"),
    Option(
        "drop_norms",
        0,
        "layers, from the last, whose LayerNorms are taken out in the joint stage; LTN is then on [CLS]",
        minimum=0,
    ),
    Option("ltn_input", "pooler", "vectors of LTN's norms: the pooler's output, or [CLS]", ("pooler", "cls")),
)
_ELSEWHERE = ("rtt", "sick", "pooling")  # the text that a stage sees, and what the encoder is asked for


def train_sub_encoder(context: StageContext) -> dict[str, Any]:
    """Train unsupervised SimCSE on [CLS] itself, without a head: stage 1."""
    objective = partial(SimCSEObjective, tau=float(context.config["tau"]), head=False)
    return training.train_sentence_encoder(context, objective)


def mean_cls_norm(tower: tuple[Any, Any], context: StageContext) -> float:
    """Mean Euclidean norm of [CLS] over the first 100 training sentences (TNCSE, Figure 5).

    With another ``train_pooling`` it is of the vectors that were trained.
    """
    import numpy as np

    pooling = find_train_pooling(context.config, "cls")
    encoder = nn.TransformerEncoder(tower, pooling, first_layer="layer1", device=context.device)
    vectors = encoder.encode(context.sentences[:100])
    return float(np.linalg.norm(vectors.astype(np.float64), axis=1).mean())


class JointObjective(training.Objective):
    """The joint loss of TNCSE (no CAELs) or JTCSE on [CLS] states and pooler outputs of two dropout views.

    With CAELs ICNCE has the towers exchanged with probability 1/2 a step (drawn from ``coin``). Towers
    without poolers get fresh ones for training: from one, or (fresh_pooler=each) each its own.
    """

    def __init__(
        self, first: Any, second: Any, pad_id: int, config: Config, caels: tuple[int, ...], coin: Any
    ) -> None:
        super().__init__()
        for model in (first, second) if caels else ():
            nn.check_callable_layers(model)
        self.towers = torch.nn.ModuleList((first, second))
        self.poolers = torch.nn.ModuleList((pooler_layer(first), pooler_layer(second)))
        without = [find_pooler_layer(model) is None for model in (first, second)]
        if config["fresh_pooler"] == "one" and all(without):
            self.poolers[1].load_state_dict(self.poolers[0].state_dict())
        self.pad_id, self.config, self.caels, self.coin = pad_id, config, caels, coin

    def prepare(self, batch: Rows) -> tuple[nn.TokenBatch, bool]:
        """Put both views of a sentence into rows one after the other; draw the exchange."""
        tossed = bool(self.caels) and bool(self.config["icnce"])
        exchanged = tossed and bool(torch.rand((), generator=self.coin) < 0.5)
        return training.token_batch(repeat_each_row(batch), self.pad_id, self.towers[0]), exchanged

    def compute(self, prepared: tuple[nn.TokenBatch, bool]) -> torch.Tensor:
        """Add the chosen terms."""
        tau, form = float(self.config["tau"]), str(self.config["nce_form"])
        tokens, exchanged = prepared
        first, second = self.towers
        cross_stream = str(self.config.get("cross_stream", "carry"))
        states = training.batch_twin_states(
            first, second, tokens, caels=self.caels, cross_stream=cross_stream
        )
        terms: list[torch.Tensor] = []
        if self.config["nce"]:
            terms += [losses.tower_nce(states.first, tau, form), losses.tower_nce(states.second, tau, form)]
        if self.config["icnce"]:
            pairs = [(states.first, states.second)]
            if states.cross_first is not None and states.cross_second is not None:
                pairs.append((states.cross_first, states.cross_second))
            for one, two in pairs:
                terms.append(losses.cross_nce(*((two, one) if exchanged else (one, two)), tau, form))
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


def repeat_each_row(rows: Rows) -> list[list[int]]:
    """Return both views of each sentence, one after the other."""
    return [row for row in rows for _ in range(2)]


def pooler_layer(model: Any) -> torch.nn.Module:
    """The pretrained pooler's linear layer, or a fresh one."""
    layer: torch.nn.Module = find_pooler_layer(model) or init_linear(nn.state_size(model))
    return layer


def find_pooler_layer(model: Any) -> Any:
    """The linear layer of BERT's or ALBERT's pretrained pooler, which a tanh follows; None for no such."""
    pooler = getattr(model, "pooler", None)
    layer = getattr(pooler, "dense", pooler)  # ALBERT's pooler is the layer itself
    return layer if isinstance(layer, torch.nn.Linear) else None


class Twin:
    """Base of a method of two towers: a subclass adds the card."""

    card: MethodCard

    def caels(self, layers: int, config: Mapping[str, OptionValue]) -> tuple[int, ...]:
        """Layers with cross-attention between the towers, out of so many: none."""
        return ()

    def train(self, context: StageContext) -> dict[str, Any]:
        """Train both towers together, from the selected sub-encoders: the joint stage."""
        config = context.config
        folders = [training.tower_folders(context.inputs[role], "selected")[0] for role, _ in TOWERS]
        adapted = bool(config.get("lora_rank"))
        towers = [nn.load_backbone(folder, keep_adapters=adapted) for folder in folders]
        for model, _ in towers:
            nn.remove_layer_norms(model, int(config.get("drop_norms", 0)))
        coin = training.generator(context.seed, f"icnce/{context.role}")
        layers = self.caels(towers[0][0].config.num_hidden_layers, config)

        objective = partial(JointObjective, config=config, caels=layers, coin=coin)
        facts = training.train_towers(context, towers, objective)
        # of the last step's weights, not of the selected ones
        facts["mean_cls_norm"] = [mean_cls_norm(tower, context) for tower in towers]
        return facts

    def stages(self, options: Mapping[str, OptionValue]) -> tuple[StageSpec, ...]:
        """Describe both sub-encoders and, with at least one of its terms, the joint stage."""
        suffix, subs = SICK if options["sick"] else "", []
        for role, copy in TOWERS:
            own = {name.removeprefix(f"{role}."): options[name] for name in options if name.startswith(role)}
            own |= {option.name: options[option.name] for option in ENCODER_OPTIONS}
            settings, text = tuple(sorted(own.items())), copy if options["rtt"] == "copies" else TRAIN
            subs.append(
                StageSpec(role, "sub_encoder", SUB_VERSION, settings, train_sub_encoder, text=text + suffix)
            )
        if not any(options[term] for term in TERMS):
            return tuple(subs)
        names = [name for name in options if "." not in name and name not in _ELSEWHERE]
        config = {name: options[name] for name in names}
        if not config["drop_norms"]:
            del config["drop_norms"]  # an option that came after the first keys
        kind, version, settings = self.card.name, self.card.version, tuple(sorted(config.items()))
        roles = tuple(role for role, _ in TOWERS)
        joint = StageSpec("joint", kind, version, settings, self.train, inputs=roles, text=TRAIN + suffix)
        return (*subs, joint)

    def build(self, context: BuildContext) -> Encoder:
        """Return the sum of both towers' vectors: two plain encoders, without pooler or normalisation."""
        joint = any(context.options[term] for term in TERMS)
        pooling, towers = str(context.options["pooling"]), []
        for role in ["joint"] if joint else [role for role, _ in TOWERS]:
            if role not in context.stages:
                raise BenchError(f"the stage '{role}' has not run")
            for path in training.tower_folders(context.stages[role], context.checkpoint):
                tower = nn.TransformerEncoder(path, pooling, first_layer="layer1", device=context.device)
                if joint:
                    nn.remove_layer_norms(tower.model, int(context.options["drop_norms"]))
                towers.append(tower)
        return nn.SumEncoder(towers)
