"""Speed of the transfer tasks' fits against SentEval's procedure, in one run on the same embeddings.

python benchmarks/transfer.py --data data                  # MR and CR, all of SentEval's 410 fits each
python benchmarks/transfer.py --data data --tasks CR --folds 1
python benchmarks/transfer.py                              # made-up vectors of CR's size

CPU seconds of one thread, embedding not counted. The peer fits one logistic regression after the other with
torch's linear layer and Adam, 4 passes between validations, stopped as SentEval stops. With --folds N its
first N of 10 outer folds are measured and scaled. Both sides' test accuracies are printed, and it is asserted
that no fit of ours ends above the peer's on the objective that both minimise.
"""

from __future__ import annotations

import argparse
import copy
import time
from pathlib import Path

import numpy as np
import torch
from claim import add_json, faster, show
from numpy.typing import NDArray

from bench.config import profiles
from bench.data import senteval
from bench.data.tasks import LabelledTask
from bench.encoder import FloatArray
from bench.eval import transfer
from bench.eval.embeddings import embed_sentences
from bench.eval.logistic_regression import LogisticSolver, logistic_objective
from bench.eval.transfer import REGS, Fitter, Protocol, cross_validate
from bench.eval.transfer_items import merge_splits, order_by_length, stratified_folds
from bench.eval.transfer_suite import labelled_sentences
from bench.nn.backbone import TransformerEncoder

Labels = NDArray[np.intp]
FOLDS, BATCH, PASSES, TENACITY, MOST_PASSES, SEED = 10, 64, 4, 5, 200, 1111


def peer_fit(
    x: FloatArray, y: Labels, valid: tuple[FloatArray, Labels] | None, reg: float
) -> torch.nn.Linear:
    """One fit as SentEval's classifier makes it."""
    order = np.random.RandomState(SEED)
    torch.manual_seed(SEED)
    model = torch.nn.Linear(x.shape[1], 2)
    optimiser = torch.optim.Adam(model.parameters(), weight_decay=reg)
    if valid is None:
        shuffled, cut = order.permutation(len(x)), int(0.05 * len(x))
        valid = x[shuffled[:cut]], y[shuffled[:cut]]
        x, y = x[shuffled[cut:]], y[shuffled[cut:]]
    inputs, labels = torch.from_numpy(x), torch.from_numpy(y)
    best, best_model, misses, passes = -1.0, model, 0, 0
    while passes <= MOST_PASSES:
        for _ in range(PASSES):
            for batch in torch.split(torch.from_numpy(order.permutation(len(x))), BATCH):
                loss = torch.nn.functional.cross_entropy(model(inputs[batch]), labels[batch])
                optimiser.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
                optimiser.step()
        passes += PASSES
        accuracy = peer_accuracy(model, *valid)
        if accuracy > best:
            best, best_model = accuracy, copy.deepcopy(model)
        elif misses >= TENACITY:
            break
        else:
            misses += 1
    return best_model


@torch.no_grad()
def peer_accuracy(model: torch.nn.Linear, x: FloatArray, y: Labels) -> float:
    """Accuracy, batch by batch as SentEval scores."""
    right = 0
    for begin in range(0, len(x), BATCH):
        found = model(torch.from_numpy(x[begin : begin + BATCH])).argmax(1).numpy()
        right += int((found == y[begin : begin + BATCH]).sum())
    return right / len(x)


def peer(x: FloatArray, y: Labels, outer_folds: int) -> tuple[float, list[float], list[tuple[float, float]]]:
    """SentEval's nested cross-validation: CPU seconds, accuracies, objectives (ours, its) of the refits."""
    begin, accuracies, refits = time.process_time(), [], []
    for rest, held_out in stratified_folds(np.arange(len(y)), y, FOLDS, SEED)[:outer_folds]:
        means = []
        for reg in REGS:
            found = []
            for train, valid in stratified_folds(rest, y, FOLDS, SEED):
                model = peer_fit(x[train], y[train], (x[valid], y[valid]), reg)
                found.append(peer_accuracy(model, x[valid], y[valid]))
            means.append(round(100 * float(np.mean(found)), 2))
        best = REGS[int(np.argmax(means))]
        model = peer_fit(x[rest], y[rest], None, best)
        accuracies.append(peer_accuracy(model, x[held_out], y[held_out]))
        refits.append((rest, best, model))
    seconds = time.process_time() - begin
    gaps = []
    for rest, reg, model in refits:
        theirs = torch.cat([model.weight, model.bias[:, None]], dim=1).detach().double().numpy()
        ours = LogisticSolver(x, y, 2).fit([rest], [reg]).weights[0]
        gaps.append(
            (
                logistic_objective(x[rest], y[rest], ours, reg),
                logistic_objective(x[rest], y[rest], theirs, reg),
            )
        )
    return seconds, accuracies, gaps


def features_of(root: Path, task_id: str, encoder: TransformerEncoder) -> tuple[FloatArray, Labels]:
    """Features and labels in SentEval's order."""
    task = senteval.SOURCES[task_id].read(root)
    assert isinstance(task, LabelledTask)
    vectors = embed_sentences(encoder, labelled_sentences(task))
    split = merge_splits(task.splits)
    order = order_by_length(split, {"0": 0, "1": 1})
    features = transfer.sentence_features(vectors, split.first, split.second)
    labels = np.array([int(label) for label in split.labels])
    return features[order], labels[order]


def made_up(rows: int = 3_775, dim: int = 384) -> tuple[FloatArray, Labels]:
    """Two overlapping clouds of CR's size."""
    rng = np.random.default_rng(0)
    y = (rng.random(rows) < 0.64).astype(np.intp)
    x = rng.normal(size=(rows, dim)) * 0.2 + np.where(y[:, None] == 1, 0.01, -0.01)
    return x.astype(np.float32), y


def measure(name: str, x: FloatArray, y: Labels, outer_folds: int, goal: float | None, wanted: bool) -> None:
    """Print one task's line."""
    begin = time.process_time()
    fitter = Fitter(x, y, 2, Protocol())
    _, test, _, _ = cross_validate(fitter)
    ours = time.process_time() - begin
    seconds, accuracies, gaps = peer(x, y, outer_folds)
    assert all(mine <= theirs for mine, theirs in gaps), gaps
    whole = seconds * FOLDS / outer_folds
    said = "" if outer_folds == FOLDS else f" (scaled from {outer_folds} of {FOLDS} outer folds)"
    print(
        f"{name}: {len(y):,} x {x.shape[1]}, ours {ours:.2f} s for {fitter.fits} fits, gradient at most "
        f"{fitter.gradient:.1e}; peer {whole:.1f} s{said}; ratio {whole / ours:.0f}"
    )
    print(
        f"  accuracy x 100: ours {100 * np.mean(test):.2f}, the peer's folds: ours "
        f"{100 * np.mean(test[:outer_folds]):.2f}, peer {100 * np.mean(accuracies):.2f}; "
        f"objective of the refits: ours {np.mean([g[0] for g in gaps]):.6f}, "
        f"peer {np.mean([g[1] for g in gaps]):.6f}"
    )
    what = f"{name}, {fitter.fits} fits: SentEval's one after the other"
    if outer_folds < FOLDS:
        what += f", scaled from {outer_folds} of {FOLDS} folds"
    show(wanted, faster(f"transfer {name}", what, ours=ours, peer=whole, goal=goal))


def main() -> None:
    """Parse, measure, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, help="evaluation data; without it made-up vectors")
    parser.add_argument("--profile", default="minilm")
    parser.add_argument("--tasks", default="MR,CR")
    parser.add_argument("--folds", type=int, default=FOLDS, choices=range(1, FOLDS + 1))
    parser.add_argument("--rows", type=int, default=3_775, help="rows of the made-up vectors")
    parser.add_argument("--goal", type=float, default=50)
    add_json(parser)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    said = arguments.folds, arguments.goal, arguments.json
    if arguments.data is None:
        measure("made-up", *made_up(arguments.rows), *said)
        return
    folder = Path(profiles.backbone_reference(profiles.load_profile(arguments.profile)))
    encoder, root = TransformerEncoder(folder, "avg"), senteval.find_root(arguments.data)
    for task in arguments.tasks.split(","):
        measure(task, *features_of(root, task, encoder), *said)


if __name__ == "__main__":
    main()
