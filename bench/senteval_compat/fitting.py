"""How a script's parameters have transfer classifiers fitted, and what is said about it."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

from bench.errors import InputError
from bench.eval.sgd import ClassifierSettings
from bench.eval.transfer import SOLVERS, Protocol
from bench.senteval_compat.evaluation import fill_defaults, read_parameter, read_whole_number
from bench.senteval_compat.tools.classifier import SETTINGS
from bench.senteval_compat.utils import get_optimizer

_TOGETHER = ("adam", "rmsprop")  # optimisers that bench.eval fits side by side
_SWITCHES = ("cudaEfficient", "noreg")  # SentEval's tasks read neither; only SNLI sets them, for itself
_LEAST = {"nhid": 0, "batch_size": 1, "tenacity": 0, "epoch_size": 1, "max_epoch": 0}
_told: set[str] = set()


@dataclass(frozen=True)
class Fitting:
    """How classifiers are fitted.

    Args:
        protocol: For :func:`bench.eval.transfer.run_transfer_task`; None where SentEval's own classes are needed.
        config: What those take, but for classes and seed.
        notice: Settings of the script that the exact solver leaves unused, or "".
    """

    protocol: Protocol | None
    config: dict[str, Any]
    notice: str = ""

    def tell(self) -> None:
        """Say the notice on stderr, once a process."""
        if self.notice and self.notice not in _told:
            _told.add(self.notice)
            print(self.notice, file=sys.stderr)


def read_fitting(params: dict[str, Any], seed: int) -> Fitting:
    """Read the parameters.

    Args:
        params: The parameters.
        seed: Of folds and fits.

    Raises:
        InputError: a setting that SentEval doesn't have, an unknown solver, or the exact one for what it
            doesn't solve.
    """
    known = fill_defaults(params)
    if not isinstance(known.classifier, dict | None):
        raise InputError(
            f"params['classifier'] is {known.classifier!r}", where="params", expected="a dictionary"
        )
    classifier = dict(known.classifier or {})
    unknown = classifier.keys() - SETTINGS.keys() - set(_SWITCHES)
    if unknown:
        raise InputError(
            f"classifier settings {sorted(unknown)}",
            where="params",
            expected=f"{', '.join((*SETTINGS, *_SWITCHES))}",
        )
    classifier = {name: value for name, value in classifier.items() if name not in _SWITCHES}
    for name, least in _LEAST.items():
        if name in classifier:
            classifier[name] = read_whole_number(classifier[name], f"classifier['{name}']", least, "params")
    config: dict[str, Any] = {
        "usepytorch": bool(known.usepytorch),
        "kfold": read_parameter(params, "kfold", 1),
        "classifier": classifier,
    }
    optim = str(classifier.get("optim", SETTINGS["optim"]))
    get_optimizer(optim)
    needs = _procedure_reason(config)
    solver = known.get("transfer_solver")
    if solver not in (None, *SOLVERS):
        raise InputError(
            f"transfer_solver '{solver}'", where="params", expected=f"one of {', '.join(SOLVERS)}"
        )
    if solver == "exact" and needs:
        raise InputError(f"transfer_solver 'exact' with {needs}", where="params", expected="'sgd'")
    if needs or (solver == "sgd" and optim not in _TOGETHER):
        return Fitting(None, config)
    own = {name: value for name, value in classifier.items() if name not in ("nhid", "dropout")}
    protocol = Protocol(solver or "exact", config["kfold"], seed, ClassifierSettings(**own))
    return Fitting(protocol, config, _unused_notice(list(own)) if own and solver is None else "")


def _procedure_reason(config: dict[str, Any]) -> str:
    """What only SentEval's own procedure has, or ""."""
    if not config["usepytorch"]:
        return "usepytorch False"
    return "hidden layers" if config["classifier"].get("nhid") else ""


def _unused_notice(names: list[str]) -> str:
    return (
        f"senteval_compat: transfer classifiers are fitted to their optimum, so {', '.join(names)} of "
        "params['classifier'] have no effect; params['transfer_solver'] = 'sgd' takes them"
    )
