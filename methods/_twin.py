"""What TNCSE and JTCSE share: the stages of a twin, its joint objective, its encoder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from bench.baselines.simcse import make_objective
from bench.card import OWN_NORMS, BuildContext, MethodCard, Need, Option, OptionValue
from bench.encoder import Encoder
from bench.errors import BenchError
from bench.stages import SICK, TRAIN, StageContext, StageSpec
from bench.train.recipe import CLS_VIEWS, POOLING_OPTION, training_options

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
        "ltn_input",
        "pooler",
        "what LTN takes the norms of: the pooler's output, or [CLS]",
        ("pooler", "cls"),
    ),
)
_ELSEWHERE = ("rtt", "sick", "pooling")  # the text that a stage sees, and what the encoder is asked for


def train_sub_encoder(context: StageContext) -> dict[str, Any]:
    """Unsupervised SimCSE on [CLS] itself: stage 1 takes the last hidden state alone, without a head."""
    from bench.train.sentence_encoder import train_sentence_encoder

    tau = float(context.config["tau"])
    return train_sentence_encoder(context, lambda model, pad: make_objective(model, pad, tau, head=False))


def mean_cls_norm(tower: tuple[Any, Any], context: StageContext) -> float:
    """Mean Euclidean norm of [CLS] over the first 100 training sentences (TNCSE, Figure 5)."""
    import numpy as np

    from bench.nn.backbone import TransformerEncoder

    vectors = TransformerEncoder(tower, "cls", device=context.device).encode(context.sentences[:100])
    return float(np.linalg.norm(vectors.astype(np.float64), axis=1).mean())


class Twin:
    """Base of a method of two towers: a subclass adds the card."""

    card: MethodCard

    def caels(self, layers: int, config: Mapping[str, OptionValue]) -> tuple[int, ...]:
        """Layers with cross-attention between the towers, out of so many: none."""
        return ()

    def train(self, context: StageContext) -> dict[str, Any]:
        """The joint stage: both towers together, from the selected sub-encoders."""
        from bench.methods._objectives import JointObjective
        from bench.nn.backbone import load_backbone, remove_layer_norms
        from bench.train.sentence_encoder import tower_folders, train_towers
        from bench.train.streams import generator

        config = context.config
        towers = [load_backbone(tower_folders(context.inputs[role], "selected")[0]) for role, _ in TOWERS]
        for model, _ in towers:
            remove_layer_norms(model, int(config.get("drop_norms", 0)))
        coin = generator(context.seed, f"icnce/{context.role}")
        layers = self.caels(towers[0][0].config.num_hidden_layers, config)
        facts = train_towers(
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
        from bench.nn.backbone import TransformerEncoder, remove_layer_norms
        from bench.nn.sum_encoder import SumEncoder
        from bench.train.sentence_encoder import tower_folders

        final = ["joint"] if any(context.options[term] for term in TERMS) else [role for role, _ in TOWERS]
        if missing := [role for role in final if role not in context.stages]:
            raise BenchError(f"the stage '{missing[0]}' has not run")
        folders = [path for role in final for path in tower_folders(context.stages[role], context.checkpoint)]
        pooling, device = str(context.options["pooling"]), context.device
        towers = [TransformerEncoder(path, pooling, first_layer="layer1", device=device) for path in folders]
        if final == ["joint"]:
            for tower in towers:
                remove_layer_norms(tower.model, int(context.options["drop_norms"]))
        return SumEncoder(towers)
