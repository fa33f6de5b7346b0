"""Every parameter of a SentEval script with SentEval's meaning; its supervised relatedness."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import pearsonr, spearmanr
from sklearn.linear_model import LogisticRegression  # type: ignore[import-untyped]
from sklearn.model_selection import StratifiedKFold  # type: ignore[import-untyped]

from bench import senteval_compat
from bench.data.senteval import SOURCES
from bench.data.tasks import LabelledTask
from bench.errors import DataError
from bench.eval.transfer_items import build_layout
from bench.senteval_compat import facebookresearch, fitting_settings, utils
from bench.senteval_compat.probing import PROBINGEval
from bench.senteval_compat.snli import SNLIEval
from bench.senteval_compat.tools import validation
from bench.senteval_compat.tools.classifier import MLP
from bench.senteval_compat.tools.relatedness import RelatednessPytorch, defined_correlation, encode_labels
from bench.senteval_compat.tools.validation import SplitClassifier
from tests.support.messages import check_error, missing_facts
from tests.support.senteval_original import hidden_layer, pair_features, regression, soft_labels
from tests.support.senteval_toy import Hashed, engine

SHORT = {"nhid": 0, "optim": "adam", "batch_size": 32, "tenacity": 2, "epoch_size": 2, "max_epoch": 20}
FULL_CONFIG: dict[str, Any] = {"nclasses": 2, "seed": 1, "usepytorch": True, "classifier": SHORT, "kfold": 2}
FEATURES, CLASSES = np.ones((12, 2)), np.arange(12) % 2


def rows(folder: Path, name: str) -> dict[str, tuple[Any, Any]]:
    """Features and classes of each split of a task of single sentences, in SentEval's order."""
    task = SOURCES[name].read(folder / "downstream")
    assert isinstance(task, LabelledTask)
    items = build_layout(task)
    return {
        part: (Hashed().encode([split.first[i] for i in order]), items.labels[items.rows[part]])
        for part, split, order in zip(items.rows, items.splits, items.orders, strict=True)
    }


@pytest.mark.parametrize("name", ["CR", "TREC", "SST5", "MRPC"])
def test_both_ways_of_the_procedure_agree(task_path: Path, name: str) -> None:
    """ "adam" fits side by side, "adam,lr=0.001" one after the other."""
    side_by_side, one_by_one = (
        engine(task_path, classifier={**SHORT, "optim": optim}, transfer_solver="sgd").eval(name)
        for optim in ("adam", "adam,lr=0.001")
    )
    assert side_by_side == pytest.approx(one_by_one, abs=1e-9)


def test_settings_of_the_optimiser_matter(task_path: Path) -> None:
    x, y = rows(task_path, "SST5")["train"]
    first, second = (MLP({**SHORT, "optim": optim}, 6, 5) for optim in ("adam", "adam,lr=0.1"))
    first.fit(x, y, validation_data=(x, y))
    second.fit(x, y, validation_data=(x, y))
    assert second.score(x, y) > first.score(x, y)
    assert second.predict(x).shape == (len(x), 1)
    assert np.allclose(second.predict_proba(x).sum(1), 1)
    assert (second.predict_proba(x).argmax(1) == second.predict(x)[:, 0]).all()


def test_a_hidden_layer_is_sentevals(task_path: Path) -> None:
    data = rows(task_path, "SST5")
    settings = {**SHORT, "nhid": 4, "optim": "sgd,lr=0.5", "tenacity": 99, "epoch_size": 1, "max_epoch": 29}
    model = MLP(settings, 6, 5, l2reg=0.01)
    best = model.fit(*data["train"], validation_data=data["dev"])
    accuracy, classes = hidden_layer(data["train"], data["dev"], units=4, rate=0.5, reg=0.01)
    assert best == pytest.approx(accuracy, abs=1e-9)
    assert model.score(*data["dev"]) == best
    assert (model.predict(data["dev"][0])[:, 0] == classes).all()


def test_hidden_layers_and_dropout_take_the_procedure_unasked(task_path: Path) -> None:
    settings = {**SHORT, "nhid": 3, "dropout": 0.2, "optim": "rmsprop"}
    chance = torch.get_rng_state()
    found = [engine(task_path, classifier=settings, transfer_solver=s).eval("SST5") for s in (None, "sgd")]
    assert found[0] == found[1]
    assert torch.equal(chance, torch.get_rng_state())  # the script's own draws stay unchanged
    data = rows(task_path, "SST5")
    scores = []
    for reg in (1e-5, 1e-4, 1e-3, 1e-2):
        model = MLP(settings, 6, 5, l2reg=reg)
        model.fit(*data["train"], validation_data=data["dev"])
        dev, test = (round(100 * model.score(*data[part]), 2) for part in ("dev", "test"))
        scores.append((dev, -reg, test))
    assert (found[0]["devacc"], found[0]["acc"]) == (max(scores)[0], max(scores)[2])


def test_words_are_told_apart_without_a_hidden_layer(task_path: Path, tmp_path: Path) -> None:
    text = (task_path / "probing" / "past_present.txt").read_text()
    for file in ("word_content.txt", "past_present.txt"):
        (tmp_path / file).write_text(text)
    flat, deep = ({"classifier": {**SHORT, "nhid": nhid}, "transfer_solver": "sgd"} for nhid in (0, 5))
    words = [PROBINGEval("WordContent", tmp_path).run(params, Hashed()) for params in (flat, deep)]
    assert words[0] == words[1]
    config = {"classifier": {"nhid": 5}}
    assert PROBINGEval("Tense", tmp_path).config(config)["classifier"]["nhid"] == 5


@pytest.mark.parametrize("name", ["CR", "TREC", "SST5"])
def test_scikit_learns_classifier(task_path: Path, name: str) -> None:
    found = engine(task_path, usepytorch=False).eval(name)
    data, seed = rows(task_path, name), 1111

    def fitted(x: Any, y: Any, strength: float) -> Any:
        return LogisticRegression(C=strength, random_state=seed).fit(x, y)

    def chosen(x: Any, y: Any, powers: range) -> tuple[float, float]:
        """Accuracy in validation and C, the smallest at ties."""
        folds = list(StratifiedKFold(3, shuffle=True, random_state=seed).split(x, y))
        best = (-1.0, 0.0)
        for power in powers:
            scores = [fitted(x[a], y[a], 2.0**power).score(x[b], y[b]) for a, b in folds]
            score = round(100 * float(np.mean(scores)), 2)
            best = max(best, (score, -(2.0**power)))
        return best[0], -best[1]

    if name == "CR":
        (x, y), dev, test = data["all"], [], []
        for a, b in StratifiedKFold(3, shuffle=True, random_state=seed).split(x, y):
            score, strength = chosen(x[a], y[a], range(-2, 4))
            dev.append(score)
            test.append(round(100 * fitted(x[a], y[a], strength).score(x[b], y[b]), 2))
        wanted = round(float(np.mean(dev)), 2), round(float(np.mean(test)), 2)
    elif name == "TREC":
        score, strength = chosen(*data["train"], range(-1, 6))
        wanted = score, round(100 * fitted(*data["train"], strength).score(*data["test"]), 2)
    else:
        models = [fitted(*data["train"], 2.0**power) for power in range(-2, 4)]
        scores = [round(100 * model.score(*data["dev"]), 2) for model in models]
        best = models[int(np.argmax(scores))]
        wanted = max(scores), round(100 * best.score(*data["test"]), 2)
    assert (found["devacc"], found["acc"]) == pytest.approx(wanted, abs=1e-9)


@pytest.mark.parametrize(
    ("torch_fits", "noreg", "grid"),
    [
        (True, False, [1e-5, 1e-4, 1e-3, 1e-2]),
        (True, True, [1e-9]),
        (False, False, [0.25, 0.5, 1, 2, 4, 8]),
        (False, True, [1e9]),
    ],
)
def test_the_grid_and_noreg(task_path: Path, torch_fits: bool, noreg: bool, grid: list[float]) -> None:
    data = rows(task_path, "SST5")
    parts = (("train", "train"), ("valid", "dev"), ("test", "test"))
    x, y = ({new: data[old][side] for new, old in parts} for side in (0, 1))
    config = {"nclasses": 5, "seed": 1111, "usepytorch": torch_fits, "classifier": SHORT, "noreg": noreg}
    tried: list[float] = []

    class Watched(SplitClassifier):
        def fit(self, reg: float, *args: Any) -> Any:
            tried.append(reg)
            return super().fit(reg, *args)

    found = Watched(x, y, {**config, "cudaEfficient": True}).run()
    assert tried == pytest.approx(grid)
    if noreg:
        return
    for given in ({"classifier": SHORT}, {"classifier": {**SHORT, "noreg": True}, "noreg": True}):
        # SentEval's tasks ignore a script's noreg
        result = engine(task_path, usepytorch=torch_fits, transfer_solver="sgd", **given).eval("SST5")
        assert (result["devacc"], result["acc"]) == pytest.approx(found, abs=1e-9)


def write_snli(root: Path) -> None:
    folder = root / "downstream" / "SNLI"
    folder.mkdir(parents=True)
    (root / "downstream" / "MR").mkdir()
    labels = ("entailment", "neutral", "contradiction")
    for split, count in (("train", 60), ("dev", 30), ("test", 24)):
        pairs = [(f"a man {i % 7} caf\xe9", f"the {i % 5} {'more ' * (i % 3)}") for i in range(count)]
        for side, name in ((0, "s1"), (1, "s2")):
            lines = "".join(f"{pair[side]}\n" for pair in pairs)
            (folder / f"{name}.{split}").write_text(lines, encoding="latin-1")
        (folder / f"labels.{split}").write_text("".join(f"{labels[i % 3]}\n" for i in range(count)))


@pytest.mark.parametrize("torch_fits", [True, False])
def test_snli_is_split_and_not_regularised(tmp_path: Path, torch_fits: bool) -> None:
    write_snli(tmp_path)
    folder = tmp_path / "downstream" / "SNLI"
    found = engine(tmp_path, usepytorch=torch_fits, classifier=SHORT).eval("SNLI")
    x, y = {}, {}
    for split, part in (("train", "train"), ("dev", "valid"), ("test", "test")):
        read = [(folder / f"{n}.{split}").read_text("latin-1").splitlines() for n in ("s1", "s2", "labels")]
        rows = sorted(zip(*read, strict=True), key=lambda r: (len(r[1].split()), len(r[0].split()), r[2]))
        u, v = (Hashed().encode([" ".join(row[side].split()) for row in rows]) for side in (0, 1))
        x[part] = np.hstack([u, v, u * v, np.abs(u - v)])
        y[part] = np.array([["entailment", "neutral", "contradiction"].index(row[2]) for row in rows])
    classifier = {**SHORT, "max_epoch": 15, "epoch_size": 1}
    config = {"nclasses": 3, "seed": 1111, "usepytorch": torch_fits, "classifier": classifier, "noreg": True}
    dev, test = SplitClassifier(x, y, config).run()
    assert found == {"devacc": dev, "acc": test, "ndev": 30, "ntest": 24}
    for damage, fact in (("-\n" * 24, "'-' is not an"), ("neutral\n", "24 .* and 1 labels")):
        (folder / "labels.test").write_text(damage)
        with pytest.raises(DataError, match=fact):
            SNLIEval(folder)
    (folder / "s2.dev").unlink()
    with pytest.raises(DataError, match="downloads SNLI"):
        SNLIEval(folder)


@pytest.mark.parametrize(
    ("seen", "calls"),
    [([0.5, 0.1, 0.6, 0.1, 0.1, 0.9], 5), (list(np.arange(20) / 20), 11)],  # 20 passes and one more round
)
def test_a_fit_stops(seen: list[float], calls: int) -> None:
    left = iter(seen)

    class Scripted(MLP):
        def score(self, devX: Any, devy: Any) -> float:  # noqa: N803
            return next(left)

    x, y = np.ones((4, 2)), np.array([0, 1, 0, 1])
    assert Scripted(SHORT, 2, 2).fit(x, y, validation_data=(x, y)) == max(seen[:calls])
    assert len(list(left)) == len(seen) - calls


def test_the_last_fit_sets_rows_aside(monkeypatch: pytest.MonkeyPatch) -> None:
    aside: list[float | None] = []

    class Watched(MLP):
        def fit(self, *args: Any, **how: Any) -> float:
            aside.append(how["validation_split"])
            return super().fit(*args, **how)

    monkeypatch.setattr(validation, "MLP", Watched)
    part = {"X": np.random.default_rng(0).normal(size=(40, 2)), "y": np.arange(40) % 2}
    validation.KFoldClassifier(part, part, FULL_CONFIG).run()
    assert aside == [None] * 8 + [0.05]


@pytest.mark.parametrize("torch_fits", [True, False])
def test_features_and_classes_that_do_not_fit_are_named(torch_fits: bool) -> None:
    config = FULL_CONFIG | {"usepytorch": torch_fits}
    whole = {"X": FEATURES, "y": CLASSES}
    three = {name: FEATURES for name in ("train", "valid", "test")}
    calls: dict[Any, tuple[str, ...]] = {
        lambda: validation.InnerKFoldClassifier(CLASSES, CLASSES, config): ("features", "(12,)", "classes"),
        lambda: validation.InnerKFoldClassifier(FEATURES, CLASSES[:3], config): ("(12, 2)", "(3,)"),
        lambda: validation.InnerKFoldClassifier(FEATURES, CLASSES, {"nclasses": 2}): (
            "config has no 'seed'", "nclasses, seed, usepytorch, classifier",
        ),
        lambda: validation.KFoldClassifier(whole, {"X": FEATURES, "y": CLASSES[:3]}, config): (
            "KFoldClassifier, test", "(12, 2)", "(3,)",
        ),
        lambda: validation.KFoldClassifier(whole, {"X": FEATURES}, config): ("test: no 'y'",),
        lambda: SplitClassifier(three, {"train": CLASSES, "test": CLASSES}, config): (
            "SplitClassifier, valid: no 'y'", "train, valid, test",
        ),
    }  # fmt: skip
    for call, facts in calls.items():
        check_error(call, "Classifier", *facts)


def test_a_classifier_names_impossible_rows_and_classes() -> None:
    model = MLP(SHORT, 2, 2)
    calls: dict[Any, tuple[str, ...]] = {
        lambda: model.fit(FEATURES, np.arange(12), validation_split=0.5): ("12 rows", "12 classes", "0 to 1"),
        lambda: model.fit(FEATURES, CLASSES[:3], validation_split=0.5): ("12 rows", "3 classes"),
        lambda: model.fit(FEATURES, np.ones(12), validation_split=0.05): ("no row of 12", "validate"),
        lambda: model.predict(np.ones((2, 3))): ("shape (2, 3)", "expected (n, 2)"),
        lambda: model.predict(np.ones(2)): ("shape (2,)", "expected (n, 2)"),
        lambda: MLP({"epoch_size": 0}, 2, 2): ("without a step",),
        lambda: MLP({"batch_size": 0}, 2, 2): ("without a step",),
    }
    for call, facts in calls.items():
        check_error(call, *facts)


def test_lists_are_taken_as_arrays() -> None:
    given: Any = dict.fromkeys(("train", "valid", "test"), FEATURES.tolist())
    classes: Any = dict.fromkeys(given, CLASSES.tolist())
    assert SplitClassifier(given, classes, FULL_CONFIG).run() == (50.0, 50.0)


def test_a_line_says_once_that_settings_have_no_effect(
    task_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(fitting_settings, "_printed", set())
    for name in ("STSBenchmark", "CR", "SST2"):
        engine(task_path, classifier={**SHORT, "optim": "adam,lr=0.01"}).eval(name)
        line = capsys.readouterr().err
        if name == "CR":
            assert line.count("\n") == 1
            settings = ", ".join(setting for setting in SHORT if setting != "nhid")
            assert not missing_facts(line, settings, "no effect", "params['transfer_solver'] = 'sgd'")
        else:
            assert line == ""
    monkeypatch.setattr(fitting_settings, "_printed", set())
    engine(task_path, classifier=SHORT, transfer_solver="exact").eval("SST2")  # asked for
    engine(task_path, classifier=SHORT, transfer_solver="sgd").eval("SST2")
    engine(task_path, classifier={"nhid": 0}).eval("SST2")  # nothing to replace
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("text", "made", "settings"),
    [
        ("adam", torch.optim.Adam, {}),
        ("adagrad,lr=0.1,lr_decay=0.05", torch.optim.Adagrad, {"lr": 0.1, "lr_decay": 0.05}),
        ("sgd,lr=.1", torch.optim.SGD, {"lr": 0.1}),
        ("rprop", torch.optim.Rprop, {}),
        ("adadelta", torch.optim.Adadelta, {}),
        ("adamax", torch.optim.Adamax, {}),
        ("asgd", torch.optim.ASGD, {}),
        ("rmsprop,alpha=0.9", torch.optim.RMSprop, {"alpha": 0.9}),
    ],
)
def test_optimisers(text: str, made: Any, settings: dict[str, float]) -> None:
    assert utils.get_optimizer(text) == (made, settings)


FILES = {
    "STSBenchmark": ("STS/STSBenchmark", ("sts-train.csv", "sts-dev.csv", "sts-test.csv"), (5, 6, 4), 0),
    "SICKRelatedness": (
        "SICK", ("SICK_train.txt", "SICK_trial.txt", "SICK_test_annotated.txt"), (1, 2, 3), 1,
    ),
}  # fmt: skip


def read(folder: Path, name: str) -> list[tuple[Any, list[float]]]:
    """Features and scores of a task's splits, by the words of both sentences, then by the score."""
    place, files, columns, header = FILES[name]
    found = []
    for file in files:
        lines = (folder / "downstream" / place / file).read_text().splitlines()[header:]
        rows = [[line.split("\t")[column] for column in columns] for line in lines]
        rows.sort(key=lambda row: (len(row[0].split()), len(row[1].split()), float(row[2])))
        u, v = (Hashed().encode([row[side] for row in rows]) for side in (0, 1))
        found.append((pair_features(u, v).astype(np.float64), [float(row[2]) for row in rows]))
    return found


def test_soft_labels() -> None:
    scores = [0, 0.25, 1, 1.6, 4.9, 5]
    assert np.allclose(encode_labels(scores), soft_labels(scores), atol=1e-7)
    assert encode_labels([0, 0.25]).sum(1).tolist() == [0, 0.25]  # the first grade is the lowest
    assert defined_correlation(pearsonr, np.ones(3), [1.0, 2.0, 3.0]) == 0
    for score in ("-1", "5.5", "nan"):
        error = check_error(
            partial(encode_labels, [1, float(score)]), f"score {score}", where="encode_labels"
        )
        assert error.expected == "0 to 5"


@pytest.mark.parametrize("correlation", [pearsonr, spearmanr])
def test_the_regression_is_sentevals(correlation: Any) -> None:
    rng = np.random.default_rng(0)
    x, bent = rng.normal(size=(230, 6)), rng.normal(size=6)
    gold = np.clip(3 + x @ bent / 2 + rng.normal(size=230), 0, 5)
    parts = [slice(0, 150), slice(150, 190), slice(190, 230)]
    train, valid, test = (dict[str, Any](X=x[part], y=encode_labels(gold[part])) for part in parts)
    config = {"seed": 7, "nclasses": 5}
    best, found = RelatednessPytorch(train, valid, test, gold[parts[1]], config, correlation).run()
    labels = soft_labels(gold[:150])
    dev = (x[parts[1]], gold[parts[1]])
    wanted = regression((x[:150], labels), dev, x[190:], lambda a, b: correlation(a, b)[0], seed=7)
    assert best == pytest.approx(wanted[0], abs=1e-4)
    assert np.allclose(found, wanted[1], atol=1e-3)


@pytest.mark.parametrize(
    ("seen", "best", "calls"),
    [
        ([0.5, 0.1, 0.1, 0.6, 0.1, 0.1, 0.9], 0.6, 6),  # the fourth that isn't better is the last
        ([float("nan"), *np.arange(1, 40) / 40], 0.5, 21),  # none is 0; 1,000 passes are the most
    ],
)
def test_the_regression_stops(seen: list[float], best: float, calls: int) -> None:
    left = iter(seen)
    part = {"X": np.ones((2, 3)), "y": np.ones((2, 5))}
    config = {"seed": 1, "nclasses": 5}
    model = RelatednessPytorch(part, part, part, [1.0, 2.0], config, lambda found, gold: (next(left),))
    assert model.run()[0] == best
    assert len(list(left)) == len(seen) - calls


@pytest.mark.parametrize(
    ("fork", "name", "key"),
    [
        ("facebookresearch", "STSBenchmark", "devpearson"),
        ("facebookresearch", "SICKRelatedness", "devpearson"),
        ("simcse", "STSBenchmark-finetune", "devspearman"),
        ("simcse", "SICKRelatedness-finetune", "devspearman"),
    ],
)
def test_the_supervised_tasks(task_path: Path, fork: str, name: str, key: str) -> None:
    found = engine(task_path, fork=fork).eval(name)
    assert set(found) == {key, "pearson", "spearman", "mse", "yhat", "ndev", "ntest"}
    train, valid, (test, gold) = read(task_path, name.removesuffix("-finetune"))
    kind: Any = pearsonr if key == "devpearson" else spearmanr
    labels = soft_labels(train[1])
    best, yhat = regression((train[0], labels), valid, test, lambda a, b: float(kind(a, b)[0]))
    assert found[key] == pytest.approx(best, abs=1e-4)
    assert np.allclose(found["yhat"], yhat, atol=1e-3)
    assert found["pearson"] == pytest.approx(pearsonr(yhat, gold)[0], abs=1e-3)
    assert found["spearman"] == pytest.approx(spearmanr(found["yhat"], gold)[0], abs=1e-12)
    assert found["mse"] == pytest.approx(np.mean((yhat - gold) ** 2), abs=1e-3)
    assert (found["ndev"], found["ntest"]) == (len(valid[1]), len(gold))


def test_the_originals_import_line_takes_its_forms(task_path: Path) -> None:
    params = {"task_path": str(task_path)}
    se = facebookresearch.engine.SE(params, Hashed())
    results = se.eval(["STS12", "SICKRelatedness"])
    assert set(results["STS12"]["all"]["spearman"]) == {"mean", "wmean"}
    assert "devpearson" in results["SICKRelatedness"]
    assert "STSBenchmark-fix" not in se.list_tasks
    simcse = senteval_compat.engine.SE(params, Hashed()).eval("STS12")
    for kind in ("pearson", "spearman"):
        both = simcse["all"][kind]
        assert results["STS12"]["all"][kind] == {name: both[name] for name in ("mean", "wmean")}
    assert set(simcse["all"]["spearman"]) == {"all", "mean", "wmean"}


def test_a_corrected_benchmark_has_its_own_folder(task_path: Path, tmp_path: Path) -> None:
    (tmp_path / "downstream").symlink_to(task_path / "downstream")
    root = tmp_path / "fixed" / "downstream" / "STS"
    root.mkdir(parents=True)
    (root / "STSBenchmark-fix").symlink_to(task_path / "downstream" / "STS" / "STSBenchmark")
    assert engine(root.parents[1]).eval("STSBenchmark-fix") == engine(tmp_path).eval("STSBenchmark")
