"""What TNCSE and JTCSE share: the stages of a twin, its joint objective, its encoder."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from bench.baselines.simcse import make_objective
from bench.card import BuildContext, Option, OptionValue
from bench.encoder import Encoder
from bench.errors import BenchError
from bench.stages import SICK, TRAIN, StageContext, StageSpec
from bench.train.recipe import POOLING_OPTION, training_options

SUB_VERSION = 1
TOWERS = (("sub1", "a"), ("sub2", "b"))
"""The two sub-encoders and the round-trip translated copy that each of them learns from."""

TERMS = ("nce", "icnce", "ictn")
"""Options that switch the joint loss's terms; without any, a twin is its sub-encoders' plain ensemble."""

TWIN_DEVIATIONS = (
    "each sub-encoder replaces the sentences by their translation; pairing isn't documented (our reading)",
    "SICK's unlabelled sentences, among them those of its test pairs, are added with sick=true only",
    "sick=true adds them to the round-trip translated copies as they are, not translated",
    "LTN is finite for zero vectors and for a cosine of exactly 0 or above 1, where the released code isn't",
)


def stage_options(stage: str, options: tuple[Option, ...]) -> tuple[Option, ...]:
    """The same options for a stage, ``STAGE.NAME``."""
    return tuple(
        Option(f"{stage}.{o.name}", o.default, f"{stage}: {o.help}", o.choices, o.minimum) for o in options
    )


def sub_options(lr1: float, lr2: float) -> tuple[Option, ...]:
    """Options of the two sub-encoders' stages."""
    return tuple(
        option
        for (role, _), lr in zip(TOWERS, (lr1, lr2), strict=True)
        for option in stage_options(
            role,
            (
                Option("tau", 0.05, "temperature", minimum=1e-4),
                *training_options(lr=lr, max_length=64, eval_every=100),
            ),
        )
    )


JOINT_OPTIONS = (
    Option("tau", 0.05, "temperature of all NCE terms", minimum=1e-4),
    Option("nce", True, "each tower's own NCE"),
    Option("icnce", True, "the NCE across the towers"),
    Option("ictn", True, "the tensor-norm loss LTN in both directions"),
    Option(
        "nce_form",
        "released",
        "negatives: all other 2N - 2 rows (released) or the N - 1 of the other view (paper)",
        ("released", "paper"),
    ),
    Option("ltn_scale", 0.5, "factor of LTN: 0.5 released, 1 paper", minimum=0),
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
    Option("pooling", POOLING_OPTION.default, POOLING_OPTION.help, POOLING_OPTION.choices),
    Option("sick", False, "add SICK's unlabelled sentences to all training text"),
    Option(
        "drop_norms",
        0,
        "layers, from the last, whose LayerNorms are taken out in the joint stage; LTN is then on [CLS]",
        minimum=0,
    ),
)
_ELSEWHERE = ("rtt", "sick", "pooling")  # the text that a stage sees, and what the encoder is asked for


def twin_stages(
    options: Mapping[str, OptionValue],
    kind: str,
    version: int,
    train: Callable[[StageContext], dict[str, Any]],
) -> tuple[StageSpec, ...]:
    """Both sub-encoders, then the joint stage, ``joint``, which needs at least one of its terms.

    Args:
        options: The method's options; a dot marks those of a stage.
        kind: Kind of the joint stage, for its key.
        version: Its version.
        train: What trains it.
    """
    more = SICK if options["sick"] else ""
    subs = tuple(
        StageSpec(
            role,
            "sub_encoder",
            SUB_VERSION,
            stage_config(options, role),
            train_sub_encoder,
            text=(copy if options["rtt"] == "copies" else TRAIN) + more,
        )
        for role, copy in TOWERS
    )
    if not any(options[term] for term in TERMS):
        return subs
    config = {name: value for name, value in options.items() if "." not in name and name not in _ELSEWHERE}
    if not config["drop_norms"]:
        del config["drop_norms"]  # an option that came after the first keys
    roles = tuple(role for role, _ in TOWERS)
    joint = StageSpec(
        "joint", kind, version, tuple(sorted(config.items())), train, inputs=roles, text=TRAIN + more
    )
    return (*subs, joint)


def stage_config(options: Mapping[str, OptionValue], stage: str) -> tuple[tuple[str, OptionValue], ...]:
    """A stage's own settings out of a method's options."""
    prefix = f"{stage}."
    return tuple(
        sorted((name.removeprefix(prefix), v) for name, v in options.items() if name.startswith(prefix))
    )


def train_sub_encoder(context: StageContext) -> dict[str, Any]:
    """Unsupervised SimCSE on [CLS] itself: stage 1 takes the last hidden state alone, without a head."""
    from bench.train.sentence_encoder import train_sentence_encoder

    tau = float(context.config["tau"])
    return train_sentence_encoder(context, lambda model, pad: make_objective(model, pad, tau, head=False))


def train_joint(context: StageContext, caels: Callable[[int], tuple[int, ...]]) -> dict[str, Any]:
    """Train both towers together, from the selected sub-encoders.

    Args:
        context: The joint stage.
        caels: From the number of layers to the layers with cross-attention.
    """
    from bench.methods._objectives import JointObjective
    from bench.nn.backbone import load_backbone, remove_layer_norms
    from bench.train.sentence_encoder import tower_folders, train_towers
    from bench.train.streams import generator

    towers = [load_backbone(tower_folders(context.inputs[role], "selected")[0]) for role, _ in TOWERS]
    for model, _ in towers:
        remove_layer_norms(model, int(context.config.get("drop_norms", 0)))
    coin = generator(context.seed, f"icnce/{context.role}")
    layers = caels(towers[0][0].config.num_hidden_layers)
    facts = train_towers(
        context,
        towers,
        lambda first, second, pad: JointObjective(first, second, pad, context.config, layers, coin),
    )
    # of the last step's weights
    facts["mean_cls_norm"] = [mean_cls_norm(tower, context) for tower in towers]
    return facts


def mean_cls_norm(tower: tuple[Any, Any], context: StageContext) -> float:
    """Mean Euclidean norm of [CLS] over the first 100 training sentences (TNCSE, Figure 5)."""
    import numpy as np

    from bench.nn.backbone import TransformerEncoder

    vectors = TransformerEncoder(tower, "cls", device=context.device).encode(context.sentences[:100])
    return float(np.linalg.norm(vectors.astype(np.float64), axis=1).mean())


def twin_encoder(context: BuildContext) -> Encoder:
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
    pooling = str(context.options["pooling"])
    towers = [TransformerEncoder(f, pooling, first_layer="layer1", device=context.device) for f in folders]
    if final == ["joint"]:
        for tower in towers:
            remove_layer_norms(tower.model, int(context.options["drop_norms"]))
    return SumEncoder(towers)
