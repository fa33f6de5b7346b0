"""BERT-whitening: the kernel's properties, both fits, the stage, and the command."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr
from transformers import AutoModel, AutoTokenizer

from bench.baselines.whitening import Moments, TargetWhitening, WhitenedEncoder, normalise_rows, whiten
from bench.data.toy_suite import make_toy_task
from bench.encoder import Encoder, PairScorer
from bench.errors import BenchError, InputError
from bench.method_card import BuildContext, OptionValue
from bench.registry import discover
from bench.stages import planned_steps
from bench.training.randomness import generator
from tests.support.cli import Cli, records
from tests.support.encoders import FunctionEncoder
from tests.support.training import SENTENCES, options_of, stage_context, stages_of

options = partial(options_of, "whitening")


def vectors_of(count: int, dim: int, seed: int = 0) -> Any:
    """Correlated directions of very different variance, far from the origin."""
    draw = np.random.default_rng(seed)
    mixing = draw.normal(size=(dim, dim)) * np.geomspace(1, 0.01, dim)
    return (draw.normal(size=(count, dim)) @ mixing.T + 5).astype(np.float32)


def fitted(vectors: Any, *cuts: int) -> Moments:
    moments = Moments(vectors.shape[1])
    for part in np.split(vectors, cuts):
        moments.add(part)
    return moments


@pytest.mark.parametrize("k", [1, 3, 6])
def test_the_fit_set_is_white(k: int) -> None:
    vectors = vectors_of(200, 6)
    moments = fitted(vectors)
    white = whiten(vectors, moments.mean, moments.kernel()[:, :k])
    assert white.shape == (200, k)
    np.testing.assert_allclose(white.mean(0), 0, atol=1e-6)
    np.testing.assert_allclose(np.cov(white.T).reshape(k, k), np.eye(k), atol=1e-6)


def test_kernel_is_the_printed_one() -> None:
    """mu and Sigma by numpy, the kernel by its SVD; columns may differ in sign."""
    vectors = vectors_of(50, 5)
    moments = fitted(vectors)
    u, s, _ = np.linalg.svd(np.cov(vectors.astype(np.float64).T))
    kernel = u @ np.diag(1 / np.sqrt(s))
    np.testing.assert_allclose(moments.mean, vectors.astype(np.float64).mean(0), rtol=1e-12)
    np.testing.assert_allclose(np.abs(moments.kernel()), np.abs(kernel), rtol=1e-6, atol=1e-9)
    first = whiten(vectors, moments.mean, moments.kernel()[:, :1])  # the direction of most variance
    centred = vectors - moments.mean
    assert np.var(centred @ u[:, 0]) == pytest.approx(s[0] * 49 / 50)
    np.testing.assert_allclose(np.abs(first[:, 0]), np.abs(centred @ u[:, 0]) / np.sqrt(s[0]), rtol=1e-6)


@pytest.mark.parametrize("cuts", [(1,), (10, 11), (3, 20, 49)])
def test_parts_give_the_same_moments(cuts: tuple[int, ...]) -> None:
    vectors = vectors_of(50, 5)
    one, parts = fitted(vectors), fitted(vectors, *cuts)
    assert parts.count == 50
    np.testing.assert_allclose(parts.mean, one.mean, rtol=1e-12)
    np.testing.assert_allclose(np.abs(parts.kernel()), np.abs(one.kernel()), rtol=1e-7, atol=1e-10)


@pytest.mark.parametrize("k", [6, 2])
def test_a_rotation_of_the_input_leaves_all_cosines(k: int) -> None:
    def cosines(rows: Any) -> Any:
        moments = fitted(rows)
        white = normalise_rows(whiten(rows, moments.mean, moments.kernel()[:, :k]))
        return white @ white.T

    vectors = vectors_of(80, 6).astype(np.float64)
    turn = np.linalg.qr(np.random.default_rng(1).normal(size=(6, 6)))[0]
    for moved in (vectors @ turn, vectors * 7 - 3):
        assert np.allclose(cosines(moved), cosines(vectors), rtol=0, atol=1e-9)


def test_fewer_vectors_than_dimensions() -> None:
    """Four vectors span three directions: those are white, the others add nothing on the fit set."""
    vectors = vectors_of(4, 8)
    moments = fitted(vectors)
    white = whiten(vectors, moments.mean, moments.kernel())
    assert np.isfinite(white).all()
    np.testing.assert_allclose(np.cov(white[:, :3].T), np.eye(3), atol=1e-6)
    np.testing.assert_allclose(white[:, 3:], 0, atol=1e-6)
    assert np.isfinite(fitted(np.repeat(vectors, 2, axis=0)).kernel()).all()
    assert normalise_rows(np.asarray([[3.0, 4.0], [0.0, 0.0]])).tolist() == [[0.6, 0.8], [0, 0]]


@pytest.mark.parametrize(
    ("vectors", "message"),
    [
        (vectors_of(1, 3), "at least two sentences, not 1"),
        (np.repeat(vectors_of(1, 3), 7, axis=0), "all vectors are equal"),
    ],
)
def test_nothing_to_whiten_is_an_error(vectors: Any, message: str) -> None:
    with pytest.raises(BenchError, match=message):
        fitted(vectors).kernel()


def white_by_hand(vectors: Any, k: int | None = None) -> Any:
    """Whitened by numpy's covariance and its SVD, then of length 1."""
    rows = vectors.astype(np.float64)
    u, s, _ = np.linalg.svd(np.cov(rows.T))
    white = (rows - rows.mean(0)) @ (u / np.sqrt(s))[:, :k]
    return white / np.linalg.norm(white, axis=1, keepdims=True)


def test_target_fits_on_both_sides_of_a_tasks_pairs_as_often_as_they_stand_there() -> None:
    vectors = vectors_of(9, 3)
    base = FunctionEncoder(lambda texts: vectors[[int(text) for text in texts]], 3)
    base.facts = {"max_length": 64}
    scorer = TargetWhitening(base, 2)
    assert isinstance(scorer, PairScorer)
    assert not isinstance(scorer, Encoder)  # a vector depends on the task, so it has none to build on
    assert scorer.facts == {"max_length": 64, "fit": "target", "k": 2}
    first, second = ["0", "0", "0", "3", "4"], ["1", "2", "0", "1", "5"]
    got = scorer.score_pairs(first, second)
    assert base.asked == [["0", "3", "4", "1", "2", "5"]]  # each distinct sentence once
    white = white_by_hand(vectors[[int(s) for s in first + second]], 2)
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, (white[:5] * white[5:]).sum(1), atol=1e-5)
    assert got[2] == pytest.approx(1)
    other = scorer.score_pairs([*first, "7"], [*second, "8"])[:5]
    assert np.abs(other - got).max() > 1e-3  # another task is another fit
    with pytest.raises(BenchError, match="all vectors are equal"):
        scorer.score_pairs(["6"], ["6"])


@pytest.fixture(scope="module")
def uneven_bert(tiny_bert: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny BERT with layer norms of unequal weights: with equal ones every vector sums to 0."""
    folder = tmp_path_factory.mktemp("uneven") / "uneven-bert"
    model = AutoModel.from_pretrained(tiny_bert)
    with torch.no_grad():
        for number, (name, parameter) in enumerate(model.named_parameters()):
            if name.endswith("LayerNorm.weight"):
                parameter.add_(0.5 * torch.rand(parameter.shape, generator=generator(number, "test")))
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(tiny_bert).save_pretrained(folder)
    return folder


def build(folder: Path, stages: dict[str, Path] | None = None, **changes: OptionValue) -> Any:
    context = BuildContext(options(**changes), None, folder, "cpu", stages or {})
    return discover().get("whitening").build(context)


def by_hand(folder: Path, sentences: Sequence[str], max_length: int = 64) -> Any:
    """(H^1 mean + H^L mean) / 2, one sentence at a time: no padding."""
    model, tokenizer = AutoModel.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)
    rows = []
    for sentence in sentences:
        batch = tokenizer(sentence, truncation=True, max_length=max_length, return_tensors="pt")
        with torch.no_grad():
            states = model(**batch, output_hidden_states=True).hidden_states
        rows.append((states[1].mean(1) + states[-1].mean(1))[0].numpy() / 2)
    return np.stack(rows)


def test_base_vectors_are_first_and_last_layer_over_at_most_64_tokens(tiny_bert: Path) -> None:
    sentences = [*SENTENCES, "", "two"]
    base = build(tiny_bert, k=0)  # no whitening
    np.testing.assert_allclose(base.encode(sentences), by_hand(tiny_bert, sentences), atol=1e-5)
    cut = build(tiny_bert, k=0, max_length=5)
    np.testing.assert_allclose(cut.encode(sentences), by_hand(tiny_bert, sentences, 5), atol=1e-5)
    assert (base.facts["max_length"], cut.facts["max_length"]) == (40, 5)
    assert isinstance(build(tiny_bert), TargetWhitening)
    assert build(tiny_bert).k == 16
    assert build(tiny_bert, k=4).k == 4
    with pytest.raises(InputError, match=r"whitening\.k: k 17 .* -1 to 16"):
        build(tiny_bert, k=17)
    with pytest.raises(BenchError, match="the stage 'whitening' has not run"):
        build(tiny_bert, fit="train")


def fit_stage(folder: Path, out: Path, text: Sequence[str], **changes: OptionValue) -> dict[str, Any]:
    (stage,) = stages_of("whitening", options(fit="train", **changes))
    out.mkdir()
    told: list[int] = []
    facts = stage.train(stage_context(stage, folder, out, sentences=text, progress=told.append))
    assert sum(told) == facts["sentences_seen"] == planned_steps(dict(stage.config), len(text))
    return facts


def test_the_stage(uneven_bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bench.baselines.whitening._CHUNK", 7)
    sentences = sorted({s for pair in make_toy_task().all_pairs() for s in pair})[:45]
    facts = fit_stage(uneven_bert, tmp_path / "a", sentences)
    assert facts["steps"] == facts["selected_step"]  # no other checkpoint
    assert (facts["selected_dev"], facts["dev_curve"]) == (None, [])
    encoder = build(uneven_bert, {"whitening": tmp_path / "a"}, fit="train")
    assert isinstance(encoder, WhitenedEncoder)
    assert isinstance(encoder, Encoder)
    assert (encoder.dim, encoder.facts["fit"]) == (16, "train")
    got = encoder.encode(sentences)
    white = white_by_hand(by_hand(uneven_bert, sentences))
    np.testing.assert_allclose(got @ got.T, white @ white.T, atol=2e-3)
    assert got.dtype == np.float32
    few = build(uneven_bert, {"whitening": tmp_path / "a"}, fit="train", k=3)
    assert few.encode(SENTENCES).shape == (4, 3)
    assert few.encode([]).shape == (0, 3)
    np.testing.assert_allclose(few.encode(SENTENCES), few.encode(SENTENCES[::-1])[::-1], atol=1e-4)

    assert fit_stage(uneven_bert, tmp_path / "b", sentences, sentences=10)["sentences_seen"] == 10
    other = build(uneven_bert, {"whitening": tmp_path / "b"}, fit="train").encode(SENTENCES)
    assert np.abs(other @ other.T - encoder.encode(SENTENCES) @ encoder.encode(SENTENCES).T).max() > 0.01


def test_one_stage_serves_every_k_and_only_the_fit_on_the_text_has_one() -> None:
    def stages(**changes: OptionValue) -> Any:
        return stages_of("whitening", options(**changes))

    assert stages() == stages(fit="train", k=0) == ()
    assert stages(fit="train", k=5) == stages(fit="train")
    assert stages(fit="train", text="a")[0].text == "a"


@pytest.mark.slow
def test_the_command(cli: Cli, tmp_path: Path, uneven_bert: Path) -> None:
    methods = "whitening,plain=whitening[k=0],few=whitening[k=4],untrained[pooling=avg_first_last]"
    layer = ("--set", "untrained.first_layer=layer1")
    code, _, err = cli("run", "--methods", methods, "--suite", "toy", "--backbone", str(uneven_bert), *layer)
    assert code == 0, err
    scores = {record.method.split("[")[0]: record.score("TOY") for record in records(tmp_path).values()}
    assert scores["plain"] == scores["untrained"]  # no sentence has 64 tokens here
    assert len(set(scores.values())) == 3
    task = make_toy_task()
    first, second = zip(*task.all_pairs(), strict=True)
    white = white_by_hand(by_hand(uneven_bert, [*first, *second]))
    gold = [value for subset in task.subsets for value in subset.gold]
    expected = spearmanr((white[: len(first)] * white[len(first) :]).sum(1), gold).statistic
    assert scores["whitening"] == pytest.approx(expected, abs=2e-3)


def test_text_needed(cli: Cli, tmp_path: Path, uneven_bert: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BENCH_DATA", raising=False)
    text = tmp_path / "text.txt"
    text.write_text("\n".join(sorted({s for pair in make_toy_task().all_pairs() for s in pair})) + "\n")
    asked = ("run", "--suite", "toy", "--profile", "minilm", "--backbone", str(uneven_bert))
    code, _, err = cli(*asked, "--methods", "whitening")
    assert code == 0, err
    code, _, err = cli(*asked, "--methods", "ensemble:whitening[fit=train]+untrained")
    assert (code, "ensemble needs a training text" in err) == (2, True)
    both = "whitening[fit=train],ensemble:whitening[fit=train]+untrained"
    code, _, err = cli(*asked, "--methods", both, "--corpus", str(text), "--dev", "toy")
    assert code == 0, err
    found = [record for record in records(tmp_path).values() if record.method != "whitening"]
    assert [(record.seed, record.status) for record in found] == [(None, "ok")] * 2
    fit, union = (list(record.training["stages"].values()) for record in found)
    assert fit == union  # one fit serves both
