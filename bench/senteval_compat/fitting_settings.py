"""From a script's parameters to the fitting of transfer classifiers, and a notice about it."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

from bench.errors import InputError
from bench.eval.sgd_classifier import ClassifierSettings
from bench.eval.transfer import SOLVERS, Protocol
from bench.senteval_compat.task_base import fill_defaults, read_parameter, read_whole_number
from bench.senteval_compat.tools.classifier import SETTINGS
from bench.senteval_compat.utils import get_optimizer

_TOGETHER = ("adam", "rmsprop")  # optimisers that bench.eval fits side by side
_SWITCHES = ("cudaEfficient", "noreg")  # SentEval's tasks ignore both; only SNLI sets them, for itself
_LEAST = {"nhid": 0, "batch_size": 1, "tenacity": 0, "epoch_size": 1, "max_epoch": 0}
_printed: set[str] = set()


@dataclass(frozen=True)
class Fitting:
    """How classifiers are fitted."""

    protocol: Protocol | None  # for run_transfer_task; None for SentEval's own classes
    config: dict[str, Any]  # the settings of these, without classes and seed
    notice: str = ""  # settings of the script that the exact solver ignores, or ""

    def print_notice(self) -> None:
        """Print the notice on stderr, once a process."""
        if self.notice and self.notice not in _printed:
            _printed.add(self.notice)
            print(self.notice, file=sys.stderr)


def read_fitting(params: dict[str, Any], seed: int) -> Fitting:
    """Read the parameters; ``seed`` is of folds and fits; unknown and incompatible ones raise InputError."""
    filled = fill_defaults(params)
    if not isinstance(filled.classifier, dict | None):
        what = f"params['classifier'] is {filled.classifier!r}"
        raise InputError(what, where="params", expected="a dictionary")
    given = filled.classifier or {}
    names = (*SETTINGS, *_SWITCHES)
    if unknown := given.keys() - set(names):
        what = f"classifier settings {sorted(unknown)}"
        raise InputError(what, where="params", expected=", ".join(names))
    classifier = {name: value for name, value in given.items() if name not in _SWITCHES}
    for name, least in _LEAST.items():
        if name in classifier:
            classifier[name] = read_whole_number(classifier[name], f"classifier['{name}']", least, "params")
    config: dict[str, Any] = {
        "usepytorch": bool(filled.usepytorch),
        "kfold": read_parameter(params, "kfold", 1),
        "classifier": classifier,
    }
    optim = str(classifier.get("optim", SETTINGS["optim"]))
    get_optimizer(optim)
    own_procedure = "hidden layers" if classifier.get("nhid") else ""
    if not config["usepytorch"]:
        own_procedure = "usepytorch False"
    solver = filled.get("transfer_solver")
    if solver not in (None, *SOLVERS):
        what = f"transfer_solver '{solver}'"
        raise InputError(what, where="params", expected=f"one of {', '.join(SOLVERS)}")
    if solver == "exact" and own_procedure:
        raise InputError(f"transfer_solver 'exact' with {own_procedure}", where="params", expected="'sgd'")
    if own_procedure or (solver == "sgd" and optim not in _TOGETHER):
        return Fitting(None, config)
    settings = {name: value for name, value in classifier.items() if name not in ("nhid", "dropout")}
    protocol = Protocol(solver or "exact", config["kfold"], seed, ClassifierSettings(**settings))
    notice = (
        f"senteval_compat: transfer classifiers are fitted to their optimum, so {', '.join(settings)} of "
        "params['classifier'] have no effect; params['transfer_solver'] = 'sgd' takes them"
    )
    return Fitting(protocol, config, notice if settings and solver is None else "")
