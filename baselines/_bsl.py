"""What BSL trains: a predictor on one view's vector finds the moving average's vector of the other."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.nn import functional

from bench.baselines._checks import check_alike
from bench.nn.architecture import state_size
from bench.nn.backbone import TokenRows, load_backbone
from bench.stages import StageContext
from bench.train.byol import Bootstrap, predictor
from bench.train.sentence_encoder import train_towers


def byol_loss(predictions: Tensor, targets: Tensor) -> Tensor:
    """Return mean_i (2 - 2 cos(q_i, y_i)) (Grill et al. 2020, eq. 2; Zhang et al. 2021; Cagatan 2024).

    Gradient flows through both; :class:`bench.train.byol.Bootstrap` gives constant targets.

    Args:
        predictions: q, (B, H).
        targets: y, (B, H).

    Returns:
        Scalar, 0 (equal directions) to 4 (opposite ones); 2 where a vector is zero.

    Raises:
        ValueError: different shapes.

    Example:
        >>> import torch
        >>> predictions = torch.tensor([[2.0, 0.0], [0.0, 1.0]])
        >>> byol_loss(predictions, torch.tensor([[1.0, 0.0], [1.0, 0.0]])).item()  # 0 and 2
        1.0
    """
    check_alike("(B, H)", predictions=predictions, targets=targets)
    unit, goal = (functional.normalize(x, dim=1, eps=1e-8) for x in (predictions, targets))
    return (2 - 2 * (unit * goal).sum(1)).mean()


def train(context: StageContext) -> dict[str, Any]:
    """Train with the bootstrapped loss: the stage, as :func:`bench.train.sentence_encoder.train_towers`."""
    config, tower = context.config, load_backbone(context.model)
    length = int(config["max_length"])
    partners = TokenRows(tower[1], context.partners, length) if context.partners else None

    def objective(model: Any, pad_id: int) -> Bootstrap:
        head = predictor(state_size(model), int(config["blocks"]))
        decay = float(config["decay"])
        return Bootstrap(model, head, pad_id, loss=byol_loss, decay=decay, partners=partners)

    select = str(config["select"])
    return train_towers(context, [tower], objective, numbered=True, pooling="avg", select=select)
