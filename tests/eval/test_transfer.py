"""Transfer tasks: the solvers against their objectives, SentEval's protocol, records and their items."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.stats import binomtest
from sklearn.linear_model import LogisticRegression  # type: ignore[import-untyped]
from sklearn.metrics import accuracy_score, f1_score  # type: ignore[import-untyped]
from sklearn.model_selection import StratifiedKFold  # type: ignore[import-untyped]

from bench.data.data_source import DataSource
from bench.data.suites import TRANSFER, load_transfer
from bench.data.tasks import LabelledSplit, LabelledTask
from bench.encoder import FloatArray
from bench.errors import BenchError, DataError, InputError
from bench.eval import logistic_regression, transfer
from bench.eval.embeddings import Embeddings
from bench.eval.logistic_regression import LogisticSolver, logistic_objective
from bench.eval.rescoring import rescore_record
from bench.eval.sgd_classifier import ClassifierSettings, fit_sgd
from bench.eval.transfer import REGS, Fitter, Protocol, cross_validate, run_transfer_task
from bench.eval.transfer_items import order_by_length, restore_order, scored_items, stratified_folds
from bench.eval.transfer_suite import TransferSuite, evaluate_transfer, labelled_sentences
from bench.records.record import NOT_RECOMPUTED, RunRecord, parse_record
from bench.records.store import ResultStore
from bench.stats.argument_checks import make_generator
from tests.support.campaigns import make_record
from tests.support.cli import Cli
from tests.support.encoders import FunctionEncoder
from tests.support.forge import forge
from tests.support.messages import check_error, missing_facts
from tests.support.senteval_original import draw_layers, fit_rounds

Classes = NDArray[np.intp]
Tasks = dict[str, LabelledTask]


def clouds(rows: int, dim: int, classes: int, *, scale: float = 1.0) -> tuple[FloatArray, Classes]:
    rng = np.random.default_rng(5)
    y = rng.integers(classes, size=rows)
    centres = rng.normal(size=(classes, dim))
    x = scale * (centres[y] + 1.5 * rng.normal(size=(rows, dim)))
    return x.astype(np.float32), y


def gradient_norm(x: FloatArray, y: Classes, weights: NDArray[np.float64], reg: float) -> float:
    """By torch's differentiation of the objective."""
    w = torch.from_numpy(weights).requires_grad_()
    logits = torch.from_numpy(x).double() @ w[:, :-1].T + w[:, -1]
    loss = torch.nn.functional.cross_entropy(logits, torch.from_numpy(y)) + reg / 2 * (w**2).sum()
    (gradient,) = torch.autograd.grad(loss, w)
    return float(gradient.norm())


@pytest.mark.parametrize(("classes", "scale"), [(2, 0.1), (2, 30.0), (3, 30.0), (20, 0.1)])
def test_every_fit_ends_at_its_optimum(classes: int, scale: float) -> None:
    x, y = clouds(260, 6, classes, scale=scale)
    rows = [np.arange(260), np.arange(0, 260, 2), np.arange(130), np.arange(130)]
    regs = [1e-5, 1e-4, 1e-3, 1e-2]
    solution = LogisticSolver(x, y, classes).fit(rows, regs)
    assert solution.weights.shape == (4, classes, 7)
    for of_fit, reg, weights, told in zip(rows, regs, solution.weights, solution.gradients, strict=True):
        norm = gradient_norm(x[of_fit], y[of_fit], weights, reg)
        assert norm <= 1e-6
        assert norm == pytest.approx(told, rel=1e-3, abs=1e-11)


def test_a_fit_does_not_depend_on_its_company() -> None:
    x, y = clouds(200, 5, 3)
    rows = [np.arange(0, 200, 2), np.arange(60), np.arange(200)]
    together = LogisticSolver(x, y, 3).fit(rows, [1e-3, 1e-2, 1e-3], tolerance=1e-9)
    for i, reg in enumerate([1e-3, 1e-2, 1e-3]):
        alone = LogisticSolver(x, y, 3).fit([rows[i]], [reg], tolerance=1e-9)
        np.testing.assert_allclose(together.weights[i], alone.weights[0], atol=1e-6)


def test_two_classes_by_hand() -> None:
    """One point on either side, no use of the bias: logit z = 2 w x solves sigmoid(-z) = reg w / x."""
    x, y = np.array([[-1.0], [1.0]]), np.array([0, 1])
    (weights,) = LogisticSolver(x, y, 2).fit([np.arange(2)], [0.1], tolerance=1e-12).weights
    w = weights[1, 0]
    np.testing.assert_allclose(weights, [[-w, 0], [w, 0]], atol=1e-10)
    assert 1 / (1 + np.exp(2 * w)) == pytest.approx(0.1 * w, abs=1e-10)
    value = np.log1p(np.exp(-2 * w)) + 0.1 / 2 * 2 * w**2
    assert logistic_objective(x, y, weights, 0.1) == pytest.approx(value, abs=1e-12)


def test_unsolvable_fits_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = clouds(40, 3, 2)
    with pytest.raises(BenchError, match="features are not finite"):
        LogisticSolver(np.where(x > 1, np.nan, x), y, 2)
    monkeypatch.setattr(logistic_regression, "MOST_ITERATIONS", 1)
    monkeypatch.setattr(logistic_regression, "_PILOT_ITERATIONS", 1)
    solver = LogisticSolver(x, y, 2)
    error = check_error(lambda: solver.fit([np.arange(40)], [1e-5], tolerance=1e-12), "ended with a gradient")
    assert error.expected == "at most 1e-12"
    settings = ClassifierSettings(optim="lbfgs")
    error = check_error(
        lambda: fit_sgd(x, y, 2, np.arange(20), None, (1e-3,), settings=settings), "optimiser 'lbfgs'"
    )
    assert not missing_facts(error.expected, "adam, rmsprop")
    for k in (1, 0):
        with pytest.raises(BenchError, match=rf"^{k} fold.* 2 or more$"):
            stratified_folds(np.arange(4), np.array([0, 0, 1, 1]), k, 1111)


def peer_fit(x: FloatArray, y: Classes, valid: Any, reg: float, optim: str) -> NDArray[np.float32]:
    """One fit of three classes by SentEval's published procedure."""
    order, (model,) = np.random.RandomState(1111), draw_layers(1111, x.shape[1], 3)
    if valid is None:
        shuffled, cut = order.permutation(len(x)), int(0.05 * len(x))
        valid, x, y = (x[shuffled[:cut]], y[shuffled[:cut]]), x[shuffled[cut:]], y[shuffled[cut:]]
    kind = {"adam": torch.optim.Adam, "rmsprop": torch.optim.RMSprop}[optim]

    def accuracy(model: torch.nn.Linear) -> float:
        return float((model(torch.from_numpy(valid[0])).argmax(1).numpy() == valid[1]).mean())

    _, best = fit_rounds(
        model, kind(model.parameters(), weight_decay=reg), torch.nn.functional.cross_entropy, (x, y),
        accuracy, order, rounds=51, passes=4, batch=64, tenacity=5,
    )  # fmt: skip
    return torch.cat([best.weight, best.bias[:, None]], dim=1).detach().numpy()


@pytest.mark.parametrize(("optim", "validated"), [("adam", True), ("rmsprop", False)])
def test_sgd_is_sentevals_procedure(optim: str, validated: bool) -> None:
    x, y = clouds(150, 4, 3)
    rows, valid = np.arange(110), np.arange(110, 150) if validated else None
    regs = (1e-5, 1e-2)
    found = fit_sgd(x, y, 3, rows, valid, regs, settings=ClassifierSettings(optim=optim))
    for reg, weights in zip(regs, found, strict=True):
        held = None if valid is None else (x[valid], y[valid])
        np.testing.assert_allclose(weights, peer_fit(x[rows], y[rows], held, reg, optim), atol=2e-5)


def test_the_optimum_is_never_above_sgd() -> None:
    x, y = clouds(160, 8, 2)
    folds = stratified_folds(np.arange(160), y, 4, 1111)
    for train, valid in folds:
        exact = LogisticSolver(x, y, 2).fit([train] * len(REGS), REGS).weights
        for reg, *fits in zip(REGS, exact, fit_sgd(x, y, 2, train, valid, REGS), strict=True):
            ours, theirs = (logistic_objective(x[train], y[train], weights, reg) for weights in fits)
            assert ours <= theirs


@pytest.mark.parametrize(
    ("rows", "classes", "k", "seed"), [(48, 2, 10, 1111), (205, 6, 10, 1111), (37, 3, 5, 2)]
)
def test_folds_are_those_of_scikit_learn(rows: int, classes: int, k: int, seed: int) -> None:
    labels = np.random.default_rng(8).permutation(np.arange(2 * rows) % classes)
    some = np.arange(1, 2 * rows, 2)
    ours = stratified_folds(some, labels, k, seed)
    theirs = StratifiedKFold(k, shuffle=True, random_state=seed).split(some, labels[some])
    for (train, held_out), (a, b) in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(train, some[a])
        np.testing.assert_array_equal(held_out, some[b])


def test_nested_folds_are_sentevals() -> None:
    """The protocol as plain loops over one fit at a time."""
    x, y = clouds(90, 4, 2)
    dev, test, regs, predictions = cross_validate(Fitter(x, y, 2, Protocol(kfold=3)))

    def predict(reg: float, train: Classes, rows: Classes) -> Classes:
        weights = LogisticSolver(x, y, 2).fit([train], [reg]).weights[0]
        classes: Classes = (x[rows] @ weights[:, :-1].T + weights[:, -1]).argmax(1)
        return classes

    split = StratifiedKFold(3, shuffle=True, random_state=1111)
    for fold, (rest, held_out) in enumerate(split.split(x, y)):
        means = []
        for reg in (1e-5, 1e-4, 1e-3, 1e-2):
            right = []
            for train, valid in split.split(x[rest], y[rest]):
                right.append((predict(reg, rest[train], rest[valid]) == y[rest[valid]]).mean())
            means.append(round(100 * float(np.mean(right)), 2))
        best = (1e-5, 1e-4, 1e-3, 1e-2)[means.index(max(means))]
        predicted = predict(best, rest, held_out)
        assert regs[fold] == best
        assert dev[fold] == pytest.approx(max(means) / 100, abs=5.1e-5)
        assert test[fold] == pytest.approx((predicted == y[held_out]).mean())
        np.testing.assert_array_equal(predictions[held_out], predicted)


@pytest.mark.parametrize(
    ("accuracies", "choice"),
    [([0.5, 0.6, 0.7, 0.6], 2), ([0.70001, 0.70004, 0.6, 0.6], 0), ([0.1, 0.1, 0.1, 0.1], 0)],
)
def test_the_best_rounded_accuracy_wins(accuracies: list[float], choice: int) -> None:
    assert transfer._choose_reg(np.array(accuracies)) == choice


def test_samples_are_sorted_by_words_and_class_and_put_back() -> None:
    split = LabelledSplit("all", ("a b", "c", "d e f", "g"), (), ("0", "1", "0", "0"))
    order = order_by_length(split, {"0": 0, "1": 1})
    assert order.tolist() == [3, 1, 0, 2]
    assert restore_order(np.array([3, 1, 0, 2]), order).tolist() == [0, 1, 2, 3]
    pairs = LabelledSplit("test", ("a b", "c", "d"), ("x", "y z", "w"), ("0", "0", "1"))
    assert order_by_length(pairs, {"0": 0, "1": 1}).tolist() == [2, 1, 0]


def random_vectors(task: LabelledTask, dim: int) -> Embeddings:
    rows = {text: row for row, text in enumerate(sorted(set(labelled_sentences(task))))}
    return Embeddings(rows, np.random.default_rng(1).normal(size=(len(rows), dim)).astype(np.float32))


def test_pairs_have_scikit_learns_answers_on_difference_and_product_and_its_f1(transfer_tasks: Tasks) -> None:
    task = transfer_tasks["MRPC"]
    vectors = random_vectors(task, 3)
    found = run_transfer_task(task, vectors, Protocol(kfold=3))
    x, y = {}, {}
    for split in task.splits:
        sides = (split.first, split.second)
        first, second = (vectors.vectors[[vectors.rows[text] for text in side]] for side in sides)
        ones = np.ones((len(first), 1))  # the bias is regularised too
        x[split.name] = np.concatenate([abs(first - second), first * second, ones], axis=1)
        y[split.name] = np.array(split.labels, dtype=int)
    # two columns of opposite weights, each half of scikit-learn's one
    peer = LogisticRegression(C=2 / (found.regs[0] * len(y["train"])), fit_intercept=False, tol=1e-10)
    predicted = peer.fit(x["train"], y["train"]).predict(x["test"])
    np.testing.assert_array_equal(found.predictions, predicted)
    np.testing.assert_array_equal(found.gold, y["test"])
    assert found.f1 == pytest.approx(f1_score(y["test"], predicted))
    assert found.accuracy == pytest.approx(accuracy_score(y["test"], predicted))
    assert 0 < found.f1 != found.accuracy < 1


def test_a_suite_gives_records(cli: Cli, data: Path, tmp_path: Path, transfer_tasks: Tasks) -> None:
    command = ("run", "--methods", "noise", "--seeds", "1", "--suite", "transfer7", "--accept-data")
    where = ("--details", "--data", str(data))
    code, out, err = cli(*command, *where)
    assert code == 0, err
    assert "Accuracy x 100" in out
    file = tmp_path / "results/local/mini/noise/seed-1/transfer7.json"
    record = json.loads(file.read_text())
    values = {(s["task"], s["subset"], s["metric"]): s["value"] for s in record["scores"]}
    accuracies = [task for task, *kind in values if kind == ["all", "accuracy"]]
    assert accuracies == [*TRANSFER, "avg"]
    assert ("MRPC", "all", "f1") in values
    assert record["tasks"]["MR"]["items"] == 48
    facts = record["provenance"]["transfer"]
    assert facts["solver"] == "exact"
    assert {task: entry["fits"] for task, entry in facts["tasks"].items()} == {
        "MR": 410, "CR": 410, "SUBJ": 410, "MPQA": 410, "SST2": 4, "TREC": 41, "MRPC": 41,
    }  # fmt: skip
    assert all(entry["largest_gradient"] <= 1e-6 for entry in facts["tasks"].values())
    average = np.mean([values[task, "all", "accuracy"] for task in TRANSFER])
    assert values["avg", "all", "accuracy"] == pytest.approx(average)
    with np.load(file.with_suffix(".npz")) as predicted:
        for task in ("SST2", "TREC", "MRPC"):  # one test split: the accuracy is that of its items
            splits = {split.name: split.labels for split in transfer_tasks[task].splits}
            classes = sorted({label for labels in splits.values() for label in labels})
            right = np.mean(np.array(classes)[predicted[task].astype(int)] == splits["test"])
            assert values[task, "all", "accuracy"] == pytest.approx(right)
        assert len(predicted["MR"]) == 48
        again = rescore_record(parse_record(file.read_text(), ""), transfer_tasks, dict(predicted))
    assert (again.wrong, again.unchecked, again.beside) == ((), (), ("dev accuracy",) * 7)
    before = file.read_bytes()
    code, _, err = cli(*command, *where)
    assert (code, file.read_bytes()) == (0, before)
    assert "1 of 1" in err
    code, _, err = cli(*command, *where, "--transfer-solver", "sgd")
    assert code == 1
    assert "another specification" in err


@pytest.mark.slow
def test_methods_are_compared_by_their_seeds(cli: Cli, data: Path) -> None:
    where = ("--data", str(data))
    command = ("run", "--methods", "noise,noise[scale=2.0]", "--seeds", "1-2", "--suite", "transfer7")
    assert cli(*command, "--accept-data", *where)[0] == 0
    code, out, err = cli("compare", "noise", "noise[scale=2.0]", *where)
    assert code == 0, err
    assert "transfer7" in out
    assert "MRPC" in out
    assert cli("check", "--reference", "results/local", "--results", "results", "--campaign", "local")[0] == 0


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("solver", ["exact", "sgd"])
def test_a_record_can_be_repeated(cli: Cli, data: Path, tmp_path: Path, solver: str) -> None:
    where = ("--data", str(data))
    code, _, err = cli(
        "run", "--methods", "noise", "--seeds", "3", "--suite", "transfer8", "--accept-data",
        "--transfer-solver", solver, *where,
    )  # fmt: skip
    assert code == 0, err
    file = tmp_path / "results/local/mini/noise/seed-3/transfer8.json"
    assert json.loads(file.read_text())["provenance"]["transfer"]["solver"] == solver
    code, out, err = cli("verify", str(file), "--rerun", *where)
    assert (code, out.split(":")[0]) == (0, "equal"), err


def test_sgd_promises_no_gradient(transfer_tasks: Tasks) -> None:
    task = transfer_tasks["SST2"]
    found = run_transfer_task(task, random_vectors(task, 6), Protocol("sgd"))
    assert (found.fits, found.gradient) == (4, None)
    assert found.accuracy == pytest.approx(float((found.predictions == found.gold).mean()))


def test_missing_and_damaged_tasks_are_all_named(data: Path, tmp_path: Path) -> None:
    root = shutil.copytree(data, tmp_path / "copy") / "downstream"
    (root / "CR/custrev.neg").unlink()
    (root / "SST/binary/sentiment-dev").write_text("no label\n")
    source = DataSource(root.parent, accept_changed=True)
    facts = ("'transfer7' lacks 2 of 7", "CR: ", "custrev.neg", "missing", "SST2: ", "sentiment-dev:1: 1 col")
    check_error(lambda: load_transfer("transfer7", source), *facts, kind=DataError)
    with pytest.raises(DataError, match=r"7 of 7 tasks: MR: .*pos:24: MR: 24 items"):
        load_transfer("transfer7", DataSource(data))
    with pytest.raises(InputError, match="bench data fetch transfer7"):
        load_transfer("transfer8")


def test_a_method_without_vectors_fails_with_a_reason(cli: Cli, data: Path) -> None:
    options = ("--suite", "transfer7", "--accept-data", "--data", str(data))
    code, _, err = cli("run", "--methods", "word_overlap", *options)
    assert (code, missing_facts(err, "FAILED", "compares pairs", "no vectors", "expected")) == (1, [])


def test_a_collapsed_encoder_gives_the_share_of_the_larger_class() -> None:
    def evaluate(positive: int, kfold: int) -> float:
        splits = (
            LabelledSplit("positive", ("a",) * positive, (), ("1",) * positive),
            LabelledSplit("negative", ("b",) * 30, (), ("0",) * 30),
        )
        encoder = FunctionEncoder(lambda texts: np.ones((len(texts), 3)), dim=3)
        run = evaluate_transfer(encoder, [LabelledTask("MR", splits)], Protocol(kfold=kfold))
        return run.scores[0].value

    assert evaluate(20, 5) == pytest.approx(0.6)
    with pytest.raises(BenchError, match="MR: a class has 5 item"):
        evaluate(5, 10)


FEW = ("--draws", "200")
tasks = pytest.fixture(lambda transfer_tasks: transfer_tasks)


def gold_of(task: LabelledTask) -> NDArray[np.intp]:
    """Classes of the tested items, by hand."""
    splits = [split for split in task.splits if split.name == "test"] or list(task.splits)
    classes = sorted({label for split in task.splits for label in split.labels})
    return np.array([classes.index(label) for split in splits for label in split.labels])


def guesses(tasks: Tasks, seed: int, wrong: float) -> dict[str, FloatArray]:
    rng = np.random.default_rng(seed)
    predictions = {}
    for name, task in tasks.items():
        gold = gold_of(task)
        missed = rng.random(len(gold)) < wrong
        predictions[name] = np.where(missed, (gold + 1) % (gold.max() + 1), gold).astype(np.float32)
    return predictions


def unscored(tasks: Tasks, method: str, seed: int) -> RunRecord:
    facts = {name: {"items": t.items, "sha256": t.sha256, "reference": False} for name, t in tasks.items()}
    made = make_record(method, seed, {"MR": 0.5}, suite="transfer7", metric="accuracy", name="noise")
    return replace(made, tasks=facts, options={"of": method}, probes={})


@pytest.fixture
def store(tasks: Tasks, tmp_path: Path) -> ResultStore:
    store = ResultStore(tmp_path / "results", "local")
    for number, (method, wrong) in enumerate((("one", 0.2), ("two", 0.4))):
        for seed in (1, 2):
            made = unscored(tasks, method, seed)
            predictions = guesses(tasks, 10 * number + seed, wrong)
            scores = TransferSuite("transfer7").rescore(list(tasks.values()), predictions, made)
            store.write(made.place, replace(made, scores=scores), predictions)
    return store


def record_of(store: ResultStore, method: str, seed: int) -> RunRecord:
    (record,) = (r for r in store.records() if (r.method, r.seed) == (method, seed))
    return record


def folds_by_hand(task: LabelledTask) -> list[NDArray[np.intp]]:
    """Rows of each of SentEval's ten folds, in the task's order."""
    gold, split = gold_of(task), scored_items(task).items
    order = order_by_length(split, {name: number for number, name in enumerate(scored_items(task).classes)})
    parts = StratifiedKFold(10, shuffle=True, random_state=1111).split(order, gold[order])
    return [order[held_out] for _, held_out in parts]


def test_scores_are_means_over_folds_or_those_of_the_test_split(tasks: Tasks) -> None:
    predictions = guesses(tasks, 3, 0.3)
    made = unscored(tasks, "one", 1)
    scores = TransferSuite("transfer7").rescore(list(tasks.values()), predictions, made)
    found = {(score.task, score.metric): score for score in scores}
    pooled = 0
    for name, task in tasks.items():
        right, gold = predictions[name] == gold_of(task), gold_of(task)
        folded = name not in ("SST2", "TREC", "MRPC")
        parts = folds_by_hand(task) if folded else [np.arange(len(gold))]
        assert sorted(np.concatenate(parts)) == list(range(len(gold)))
        assert found[name, "accuracy"].value == pytest.approx(np.mean([right[p].mean() for p in parts]))
        assert found[name, "accuracy"].n == len(gold)
        pooled += abs(found[name, "accuracy"].value - right.mean()) < 1e-6
    assert pooled < len(tasks)  # folds of unequal size: the mean over items is another number
    assert found["MRPC", "f1"].value == pytest.approx(f1_score(gold_of(tasks["MRPC"]), predictions["MRPC"]))
    assert found["avg", "accuracy"].value == pytest.approx(
        np.mean([found[name, "accuracy"].value for name in TRANSFER])
    )
    with pytest.raises(BenchError, match="MR: 47 predictions for 48"):
        TransferSuite("transfer7").rescore([tasks["MR"]], {"MR": predictions["MR"][1:]}, made)


@pytest.mark.parametrize("task", TRANSFER)
def test_one_edited_class_is_found(store: ResultStore, tasks: Tasks, task: str) -> None:
    record = record_of(store, "one", 1)
    predictions = store.predictions(record)
    assert rescore_record(record, tasks, predictions).wrong == ()
    gold = gold_of(tasks[task])
    row = int(np.flatnonzero(predictions[task] != gold)[0])
    predictions[task][row] = gold[row]
    found = rescore_record(record, tasks, predictions).wrong
    wrong = {line.split(" is ")[0] for line in found}
    assert {f"{task} all accuracy", "avg all accuracy"} <= wrong
    assert ("MRPC all f1" in wrong) == (task == "MRPC")
    assert len(found) == 2 + (task == "MRPC")


def as_json(cli: Cli, *arguments: str) -> Any:
    code, out, err = cli(*arguments, "--format", "json", *FEW)
    assert (code, err) == (0, "")
    return json.loads(out)


def test_checkpoints_are_compared_over_items(cli: Cli, store: ResultStore, tasks: Tasks, data: Path) -> None:
    (found,) = as_json(cli, "compare", "one#1", "two#1", "--data", str(data))
    sides = [store.predictions(record_of(store, method, 1)) for method in ("one", "two")]
    (pair,) = found["item_level"]["checkpoints"]
    assert (pair["williams"], pair["steiger"]) == ({}, {})
    for name in ("MRPC", "MR"):
        gold = gold_of(tasks[name])
        right = np.stack([side[name] == gold for side in sides])
        weights = np.ones(len(gold))
        for part in folds_by_hand(tasks[name]) if name == "MR" else ():
            weights[part] = len(gold) / (10 * len(part))
        chosen = make_generator(1, f"items/{name}").integers(0, len(gold), (200, len(gold)))
        a, b = np.clip((weights * right)[:, chosen].mean(2), 0, 1)
        d = found["item_level"]["tasks"][name]
        assert (d["low"], d["high"]) == pytest.approx(np.quantile(a - b, [0.025, 0.975]), abs=1e-6)
        assert d["low"] <= d["difference"] <= d["high"]
        only = int((right[0] & ~right[1]).sum()), int((right[1] & ~right[0]).sum())
        test = pair["mcnemar"][name]
        assert (test["only_first"], test["only_second"], test["n"]) == (*only, len(gold))
        assert test["p"] == pytest.approx(binomtest(only[0], sum(only)).pvalue)
    assert "one#1 - two#1 = +" in found["verdict"]
    statements = " ".join(found["statements"])
    assert missing_facts(statements, "McNemar", "Williams", NOT_RECOMPUTED) == ["Williams", NOT_RECOMPUTED]
    code, out, _ = cli("compare", "one", "two", "--data", str(data), *FEW, "--details")
    assert code == 0
    assert not missing_facts(out, "tasks (of 7)", "New seeds, new items: ")


def test_every_record_has_intervals(cli: Cli, store: ResultStore, data: Path) -> None:
    found = as_json(cli, "stats", "--data", str(data))
    assert len(found["records"]) == 4
    assert as_json(cli, "stats", "--data", str(data)) == found  # with the kept draws, without a complaint
    for record in found["records"]:
        for name in (*TRANSFER, "avg"):
            low, high = record["intervals"][name]
            assert 0 < low < record["scores"][name] < high <= 1


def test_what_two_runs_classify_differently(
    cli: Cli, store: ResultStore, tasks: Tasks, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    asked = ("--data", str(data), "--task", "TREC", "-n", "200")
    code, out, err = cli("compare", "--show-items", "one", "two", "--seed", "2", *asked)
    assert (code, err) == (0, "")
    a, b = (store.predictions(record_of(store, method, 2))["TREC"] for method in ("one", "two"))
    gold, classes = gold_of(tasks["TREC"]), scored_items(tasks["TREC"]).classes
    (split,) = (split for split in tasks["TREC"].splits if split.name == "test")
    change = (b == gold).astype(int) - (a == gold)
    differs = np.flatnonzero(a != b)
    order = sorted(differs, key=lambda i: change[i] == 0)
    lines = [line for line in out.splitlines()[4:-1] if line.strip()]
    assert not missing_facts(out, "TREC (72 items)", "one, seed 2", "two, seed 2")
    assert len(lines) == len(differs)
    for i, line in zip(order, lines, strict=True):
        words = {1: "right in B", -1: "right in A", 0: "wrong in both"}[change[i]]
        shown = [words, *(classes[int(side[i])] for side in (a, b, gold)), split.first[i]]
        assert " ".join(line.split()) == " ".join(shown)


def better(facts: dict[str, Any]) -> None:
    for score in facts["scores"]:
        score["value"] += {"MR": 0.05, "avg": 0.05 / 7}.get(score["task"], 0)


def test_edited_accuracy(cli: Cli, store: ResultStore, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compared = ("compare", "one#1", "two#1", *FEW)
    monkeypatch.delenv("BENCH_DATA", raising=False)
    code, _, err = cli(*compared)
    assert (code, "needs evaluation data" in err) == (2, True)
    assert cli(*compared, "--data", str(data))[0] == 0
    code, out, err = cli(*compared)  # the draws are kept
    assert (code, err) == (0, "")
    assert out.count(NOT_RECOMPUTED) == 1
    assert "McNemar" not in out
    code, out, err = cli("stats", *FEW)
    assert code == 0
    assert not missing_facts(err, "items left out", "needs evaluation data")  # seed 2 has no draws
    path = store.path(record_of(store, "one", 1).place)
    forge(path, better)
    for arguments in (compared, (*compared, "--data", str(data)), ("stats", *FEW)):
        code, out, err = cli(*arguments)
        assert (code, out, str(path.relative_to(Path.cwd())) in err) == (2, "", True)
        assert "predictions give 0." in err
