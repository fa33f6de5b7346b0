"""ConSERT: two augmented views of a sentence's embeddings, contrasted from both sides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from bench import losses, nn, training
from bench.lazy import torch
from bench.method_card import MethodCard, Option, OptionValue
from bench.registry import add_method
from bench.stages import StageContext, StageSpec
from bench.training.encoder_options import ENCODER_OPTIONS, PROMPTLESS, check_train_pooling
from bench.training.recipe import POOLING_OPTION, TEXT_OPTION, TrainedOnce, training_options

VIEWS = ("none", "shuffle", "token_cutoff", "feature_cutoff", "element_cutoff")
UNORDERED = ("avg", "avg_first_last")
"""Poolings that don't depend on the order of a row."""


def draw_cutoff(
    view: str, tokens: int, features: int, rate: float, draw: torch.Generator
) -> torch.Tensor | None:
    """Draw the elements of a row's embeddings that a view sets to 0.

    Released: BertModel._cutoff_embeddings (Yan et al. 2021). floor(rate n) of n tokens, features or elements
    are drawn, specials included.

    Args:
        view: One of :data:`VIEWS`.
        tokens: n.
        features: E, of the embeddings' output.
        rate: Share of the cut units, 0 to 1.
        draw: Source of the draws.

    Returns:
        True where an element is 0, (n, E); None for a view without a cutoff.
    """
    shapes = {
        "token_cutoff": (tokens, 1),
        "feature_cutoff": (1, features),
        "element_cutoff": (tokens, features),
    }
    if view not in shapes:
        return None
    rows, columns = shapes[view]
    cut = torch.zeros(rows * columns, dtype=torch.bool)
    cut[torch.randperm(len(cut), generator=draw)[: int(len(cut) * rate)]] = True
    return cut.view(rows, columns).expand(tokens, features)


def shuffle_row(row: Sequence[int], draw: torch.Generator) -> list[int]:
    """Return the row in a random order, specials included."""
    return [row[place] for place in torch.randperm(len(row), generator=draw).tolist()]


class ConSERTObjective(training.Objective):
    """Token rows to the contrast of two views, without a head."""

    def __init__(self, model: Any, pad_id: int, context: StageContext) -> None:
        super().__init__()
        config = context.config
        self.encoder, self.pad_id = model, pad_id
        self.tau, self.weight = float(config["tau"]), float(config["weight"])
        self.views = tuple((str(config[f"view{side}"]), float(config[f"rate{side}"])) for side in (1, 2))
        cuts = any(view.endswith("_cutoff") for view, _ in self.views)
        self.features = nn.prepare_cutoffs(model) if cuts else 0
        self.draws = training.generator(context.seed, f"augment/{context.role}")

    def prepare(self, batch: Sequence[list[int]]) -> nn.TokenBatch:
        """Draw both views: all first ones, after them all second ones."""
        rows, zeros = [], []
        for view, rate in self.views:
            for row in batch:
                rows.append(shuffle_row(row, self.draws) if view == "shuffle" else row)
                zeros.append(draw_cutoff(view, len(row), self.features, rate, self.draws))
        return training.token_batch(rows, self.pad_id, self.encoder, zeros=zeros)

    def compute(self, prepared: nn.TokenBatch) -> torch.Tensor:
        """Encode both views in one call; the sum of both sides is twice their mean."""
        first, second = training.batch_states(self.encoder, prepared, "avg").chunk(2)
        return 2 * self.weight * losses.near_nce(first, second, None, self.tau)


@add_method
class ConSERT(TrainedOnce):
    """ConSERT, unsupervised."""

    card = MethodCard(
        name="consert",
        printed="ConSERT",
        family="contrastive",
        adds="shuffled and cut views, no dropout; NT-Xent over both views, tau 0.1; "
        "mean of the last two layers",
        cites=("yan-etal-2021-consert",),
        tags=("cut embeddings", "shuffled tokens"),
        passes=6.0,
        kind="baseline",
        summary="ConSERT: views by feature cutoff and token shuffling, contrasted from both sides",
        version=1,
        paper="Yan, Li, Wang, Zhang, Wu, Xu 2021, ConSERT: A Contrastive Framework for Self-Supervised "
        "Sentence Representation Transfer",
        code="yym6472/ConSERT 03c9e8f, scripts/unsup-consert-base.sh",
        equations=(
            "E = the embeddings' output of x, (n, d), after its LayerNorm",
            "shuffle: the n tokens take the n positions in a random order, specials included",
            "token_cutoff, feature_cutoff: floor(rate n) rows or floor(rate d) columns of E are 0",
            "element_cutoff: floor(rate n d) elements of E are 0, the others are not scaled",
            "e, e': mean of the last layer's states of the views view1 and view2",
            "l(u, v)_i = -log[exp(cos(u_i, v_i) / tau) / (exp(cos(u_i, v_i) / tau) "
            "+ sum_{j != i} (exp(cos(u_i, v_j) / tau) + exp(cos(u_i, u_j) / tau)))]",
            "L = w mean_i [l(e, e')_i + l(e', e)_i]",
            "at inference the mean of the last two layers' states of x",
        ),
        needs=(),
        options=(
            Option("view1", "feature_cutoff", "augmentation of the first view", VIEWS),
            Option("view2", "shuffle", "augmentation of the second view", VIEWS),
            Option("rate1", 0.2, "share that a cutoff of the first view sets to 0", minimum=0, below=1),
            Option("rate2", 0.2, "share that a cutoff of the second view sets to 0", minimum=0, below=1),
            Option("tau", 0.1, "temperature", minimum=1e-4),
            Option("weight", 0.15, "w, weight of the loss, which only clipping and eps feel", minimum=0),
            Option("warmup", 0.1, "share of the steps over which the rate rises", minimum=0, maximum=1),
            Option("decay_all", False, "weight decay on biases and LayerNorms too"),
            Option(
                "adam_eps",
                1e-6,
                "AdamW's eps, added to the root of the second moment before its bias is corrected",
                minimum=1e-12,
            ),
            Option("bias_correction", False, "AdamW corrects the bias of its moments (released: it doesn't)"),
            *training_options(
                lr=5e-7,
                batch_size=96,
                epochs=10,
                eval_every=200,
                max_length=67,
                dropout=0.0,
                weight_decay=0.01,
            ),
            TEXT_OPTION,
            replace(POOLING_OPTION, default="avg_last_two"),
            *ENCODER_OPTIONS,
        ),
        deviations=(
            "float32 throughout; the released run used apex O1 (fp16)",
            "trains on the profile's text; released: all sentences of STS12-16, STS-B and SICK-R, also those "
            "of the test pairs",
            "all steps are taken; released: a training ends after 10 dev evaluations without a better one",
            "dev evaluation every 200 steps; released: at an epoch's end too, where the count starts again",
            "max_length 67: the released maximum of 64, whose code adds 3 places for special tokens",
            "shuffle permutes the tokens; released: position ids, with the same mean state. So it reaches "
            "rotary and relative positions too",
            "released for RoBERTa: shuffled positions are 0 to n - 1, all others 2 to n + 1; here always the "
            "latter",
            "element_cutoff is called dropout in the released code, which has a rate only for feature_cutoff",
            "the adversarial view is left out: its gradient is of a supervised loss, on labelled pairs",
            "a cutoff of a model without a module of embeddings changes its word embeddings",
        ),
        published_names=(("consert", "profile bert-base; published after training on the STS tasks' texts"),),
    )

    def stages(self, options: Mapping[str, OptionValue]) -> tuple[StageSpec, ...]:
        """Describe the one stage; InputError: a pooling that reads a place of a shuffled row."""
        views = {str(options["view1"]), str(options["view2"])}
        if "shuffle" in views:
            why = "reads a place of the row, where shuffle puts another token"
            check_train_pooling(self.card.name, options, UNORDERED, why)
        elif views != {"none"}:
            why = "has its prompt's tokens cut too"
            check_train_pooling(self.card.name, options, PROMPTLESS, why)
        return super().stages(options)

    def train(self, context: StageContext) -> dict[str, Any]:
        """Train on two augmented views, as :func:`bench.training.train_towers`."""
        tower = nn.load_backbone(context.model)
        return training.train_towers(
            context, [tower], lambda model, pad_id: ConSERTObjective(model, pad_id, context), pooling="avg"
        )
