"""static:METHOD against a transcription of Model2Vec, its exported folder, and what it refuses."""

from __future__ import annotations

import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from safetensors.numpy import load_file
from sentence_transformers import SentenceTransformer
from tokenizers import Tokenizer
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel
from transformers import AutoTokenizer, PreTrainedTokenizerFast

import bench
from bench.encoder import Encoder
from bench.errors import BenchError, InputError
from bench.execution.record_probes import add_cost_efficiency
from bench.method_card import BuildContext, OptionValue
from bench.methods.static import encode_tokens, principal_components, rank_weights, strip_tokenizer
from bench.nn.backbone import TransformerEncoder, load_backbone
from bench.nn.encoder_folder import export_encoder, load_encoder
from bench.nn.static_encoder import StaticEncoder
from bench.nn.sum_encoder import SumEncoder
from bench.probes.cost import encoder_cost, table_parameters
from bench.registry import discover
from tests.support.cli import Cli, records
from tests.support.training import Trained, plan_on_toy, train_alone

Matrix = NDArray[np.float64]
LONG = "Two children are singing a zyx [MASK] song on the hill."
TEXT = ["The doctor is reading a book.", "", "a", LONG, "zyx zyx"]


@pytest.fixture(scope="module")
def bert(tiny_bert: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny BERT with [unused] tokens in the middle of its vocabulary."""
    folder = tmp_path_factory.mktemp("unused") / "bert"
    shutil.copytree(tiny_bert, folder)
    _, tokenizer = load_backbone(tiny_bert)
    words = [word for word, _ in sorted(tokenizer.get_vocab().items(), key=lambda item: item[1])]
    words[7], words[9] = "[unused0]", "[unused12]"
    made = type(tokenizer)(vocab={word: i for i, word in enumerate(words)}, do_lower_case=True)
    made.save_pretrained(folder)
    return folder


def teacher_of(folder: Path, pooling: str = "cls", template: str = "auto") -> TransformerEncoder:
    """In float64, or a batch would round otherwise than a sentence alone."""
    model, tokenizer = load_backbone(folder)
    return TransformerEncoder((model.double(), tokenizer), pooling, template=template)


def made(teacher: Encoder, backbone: Path, out: Path, **changes: OptionValue) -> tuple[Encoder, Trained]:
    trained = train_alone("static", backbone, out, {"members": {"teacher": teacher}}, **changes)
    context = BuildContext(trained.options, 1, backbone, "cpu", {"static": trained.folder})
    encoder = discover().get("static").build(context)
    assert isinstance(encoder, StaticEncoder)
    return encoder, trained


def transcribed(folder: Path, pooling: str, weighting: str, dimensions: int, a: float) -> dict[int, Matrix]:
    """Vector of each token that Model2Vec keeps: one sentence after the other, numpy's SVD, plain loops."""
    model, tokenizer = load_backbone(folder)
    model.double().eval()
    words = sorted(tokenizer.get_vocab().items(), key=lambda item: item[1])
    kept = [i for word, i in words if word not in ("[CLS]", "[SEP]", "[MASK]", "[unused0]", "[unused12]")]
    assert len(kept) == len(words) - 5
    vectors = []
    for token in kept:
        row = torch.tensor([[tokenizer.cls_token_id, token, tokenizer.sep_token_id]])
        with torch.no_grad():
            states = model(input_ids=row).last_hidden_state[0].numpy()
        vectors.append(states[0] if pooling == "cls" else states.mean(0))
    x = encode_tokens([(1.0, teacher_of(folder, pooling))], kept)
    np.testing.assert_allclose(x, np.stack(vectors), rtol=0, atol=1e-6)
    if dimensions:  # of the same float32 vectors: components can lie close, and the last digit turns them
        x = x - x.mean(0)
        x = x @ np.linalg.svd(x, full_matrices=False)[2][:dimensions].T
    total = sum(1 / (rank + 2) for rank in range(len(kept)))
    found = {}
    for rank, token in enumerate(kept):
        weight = {"sif": a / (a + 1 / (rank + 2) / total), "zipf": math.log(1 + rank), "none": 1.0}[weighting]
        found[token] = x[rank] * weight
    return found


def expected_vectors(folder: Path, vectors: dict[int, Matrix]) -> Matrix:
    """Mean of the tokens of each text without the unknown one, length 1; "[MASK]" is four words there."""
    vocabulary, rows = AutoTokenizer.from_pretrained(folder).get_vocab(), []
    for text in TEXT:
        words = text.lower().replace("[mask]", "[ mask ]").replace(".", " .").split()
        found = [vectors[vocabulary[word]] for word in words if word in vocabulary]
        mean = np.mean(found, axis=0) if found else np.zeros(len(vectors[0]))
        rows.append(mean / (np.linalg.norm(mean) or 1))
    return np.stack(rows)


def same_up_to_signs(found: NDArray[np.floating], expected: Matrix) -> None:
    """A principal component's sign is free."""
    signs = np.sign((found * expected).sum(0))
    np.testing.assert_allclose(found, expected * signs, rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("pooling", "weighting", "dimensions", "a"),
    [("cls", "sif", 256, 1e-4), ("avg", "sif", 5, 0.5), ("cls", "zipf", 8, 1e-4), ("avg", "none", 0, 1e-4)],
)
def test_tables_and_sentences_equal_a_transcription(
    bert: Path, tmp_path: Path, pooling: str, weighting: str, dimensions: int, a: float
) -> None:
    given: dict[str, OptionValue] = {"weighting": weighting, "dimensions": dimensions, "sif_coefficient": a}
    encoder, trained = made(teacher_of(bert, pooling), bert, tmp_path, **given)
    vectors = transcribed(bert, pooling, weighting, dimensions, a)
    table = load_file(trained.folder / "model.safetensors")["embedding.weight"]
    tokens = [token for token in vectors if token != 1]  # [UNK]
    same_up_to_signs(table[tokens], np.stack([vectors[token] for token in tokens]))
    rest = sorted(set(range(len(table))) - set(tokens))
    assert len(rest) == 6
    assert not table[rest].any()
    assert len(vectors) == trained.facts["tokens"]
    same_up_to_signs(encoder.encode(TEXT), expected_vectors(bert, vectors))
    assert not encoder.encode(TEXT)[[1, 4]].any()  # no token, no known token


def test_the_share_of_the_variance(bert: Path, tmp_path: Path) -> None:
    vectors = transcribed(bert, "cls", "none", 0, 1.0)
    x = np.stack(list(vectors.values()))
    values = np.linalg.svd(x - x.mean(0), compute_uv=False) ** 2
    _, trained = made(teacher_of(bert), bert, tmp_path, dimensions=4)
    assert trained.facts["explained_variance"] == pytest.approx(values[:4].sum() / values.sum(), abs=1e-5)
    assert trained.facts["dimensions"] == 4
    facts = made(teacher_of(bert), bert, tmp_path)[1].facts
    assert (facts["dimensions"], facts["explained_variance"], facts["sentences_seen"]) == (16, 1.0, 0)


def test_pca_and_weights_by_hand() -> None:
    few = np.array([[1.0, 0.0], [0.0, 3.0]])
    assert principal_components(few, 2)[0] is few  # no fewer dimensions than tokens: as released, none
    reduced, share = principal_components(np.array([[1.0, 5.0]] * 4), 1)
    assert (not reduced.any(), share) == (True, 1.0)
    np.testing.assert_allclose(rank_weights(3, "sif", 1e-4), 1e-4 / (1e-4 + np.array([6, 4, 3]) / 13))
    with pytest.raises(ValueError, match="weighting 'idf' must be one of sif, zipf, none"):
        rank_weights(3, "idf", 1.0)


def test_the_same_teacher_gives_the_same_bytes(bert: Path, tmp_path: Path) -> None:
    files = [
        (made(teacher_of(bert, pooling), bert, tmp_path)[1].folder / "model.safetensors").read_bytes()
        for pooling in ("cls", "cls", "avg")
    ]
    assert files[0] == files[1] != files[2]


def test_a_sum_of_towers_and_a_template_hold_the_token(bert: Path, tmp_path: Path) -> None:
    def table(teacher: Encoder) -> NDArray[np.floating]:
        folder = made(teacher, bert, tmp_path, dimensions=0, weighting="none")[1].folder
        return load_file(folder / "model.safetensors")["embedding.weight"]

    both = SumEncoder([teacher_of(bert, pooling) for pooling in ("cls", "avg")], [0.25, 2.0])
    one, two = (transcribed(bert, pooling, "none", 0, 1.0) for pooling in ("cls", "avg"))
    np.testing.assert_allclose(table(both)[8], 0.25 * one[8] + 2 * two[8], rtol=0, atol=1e-6)
    teacher = teacher_of(bert, "mask", "this {sentence} of {mask} .")
    word = teacher.tokenizer.convert_ids_to_tokens(15)
    np.testing.assert_allclose(table(teacher)[15], teacher.encode([word])[0], rtol=0, atol=1e-6)


def test_refused_teachers(bert: Path, tiny_bert: Path, tmp_path: Path) -> None:
    both = SumEncoder([teacher_of(bert), teacher_of(tiny_bert)])
    with pytest.raises(BenchError, match="different vocabularies"):
        made(both, bert, tmp_path)
    encoder, _ = made(teacher_of(bert), bert, tmp_path)
    with pytest.raises(BenchError, match="no vectors of single tokens: StaticEncoder"):
        made(encoder, bert, tmp_path)


def test_a_tokenizer_of_bytes_reads_the_first_word_as_any_other() -> None:
    vocabulary = {"a": 0, "\u0120": 1, "\u0120a": 2, "<unk>": 3}
    backend = Tokenizer(BPE(vocabulary, [("\u0120", "a")]))
    backend.pre_tokenizer = ByteLevel(add_prefix_space=False)
    specials = {"unk_token": "<unk>", "mask_token": "<mask>"}
    made_of: Any = PreTrainedTokenizerFast
    tokenizer = made_of(tokenizer_object=backend, **specials)
    words, kept = strip_tokenizer(tokenizer)
    assert words.encode("a a").ids == [2, 2]
    assert backend.encode("a a").ids == [0, 2]  # the teacher's own is as it was
    assert kept == [0, 1, 2, 3]
    assert "<mask>" not in words.get_vocab()


def test_the_exported_folder_gives_the_same_vectors(bert: Path, tmp_path: Path) -> None:
    encoder, _ = made(teacher_of(bert), bert, tmp_path, dimensions=6)
    out = tmp_path / "export"
    export_encoder(encoder, out, "# A card\n")
    expected = encoder.encode(TEXT)
    for found in (SentenceTransformer(str(out)).encode(TEXT), bench.load(out).encode(TEXT)):
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)
    both = SumEncoder([encoder, encoder], [1.0, 0.5])
    export_encoder(both, tmp_path / "sum", "# A card\n")
    np.testing.assert_allclose(load_encoder(tmp_path / "sum").encode(TEXT), 1.5 * expected, atol=1e-6)
    (out / "bench.json").write_text('{"schema": 1, "kind": "static", "dim": 7}')
    with pytest.raises(InputError, match="dim 7; expected 6, as the table says"):
        bench.load(out)
    (out / "model.safetensors").write_bytes(b"no")
    with pytest.raises(InputError, match=r"export: model\.safetensors can't be read"):
        bench.load(out)


def test_costs_of_a_table(bert: Path, tmp_path: Path) -> None:
    encoder, _ = made(teacher_of(bert), bert, tmp_path, dimensions=6)
    size = table_parameters(encoder)
    assert size == 6 * len(AutoTokenizer.from_pretrained(bert)) == encoder.facts["parameters"]
    assert table_parameters(SumEncoder([encoder, encoder])) == 2 * size
    found = encoder_cost([], size)
    assert (found["gmac"], found["parameters"], found["towers"]) == (0.0, size, [])
    assert "table" in found["convention"]
    assert "table" not in encoder_cost([])["convention"]
    record: Any = type("Record", (), {"score": lambda *_: 0.5, "suite": "s"})()
    assert "eta" not in add_cost_efficiency({"cost": found}, record)["cost"]  # not divided by 0


def test_one_stage_for_one_teacher_and_no_seed_without_one(tmp_path: Path) -> None:
    methods = (
        "static,distill:static:simcse,x=static[weighting=zipf],y=static[weighting=zipf,sif_coefficient=1]"
    )
    cells = [job.cell for job in plan_on_toy(methods, tmp_path, seeds=(1, 2)).jobs]
    assert len(cells) == 8
    keys = {(cell.method, cell.seed): cell.stages[-1].key for cell in cells}
    assert keys["static", 1] == keys["static:simcse", 1] != keys["static", 2]
    assert keys["x", 1] == keys["y", 1] != keys["static", 1]
    (alone,) = (job.cell for job in plan_on_toy("static:untrained", tmp_path, seeds=(1, 2)).jobs)
    assert alone.seed is None
    assert [stage.spec.role for stage in alone.stages] == ["static"]


def test_a_run_and_its_rerun(cli: Cli, tmp_path: Path, tiny_bert: Path, corpus: Path) -> None:
    code, _, err = cli(
        "run", "--methods", "distill:static:untrained:avg,other=static[of=untrained,dimensions=4]", "--suite",
        "toy", "--seeds", "1-2", "--backbone", str(tiny_bert), "--corpus", str(corpus), "--dev", "toy",
        "--probes", "cost,attention_sink",
    )  # fmt: skip
    assert code == 0, err
    found = records(tmp_path)
    assert sorted(record.method for record in found.values()) == ["other", "static:untrained:avg"]
    for path, record in found.items():
        assert record.timing["training_cpu_seconds"].keys() == {"static"}
        assert record.training["stages"]["static"]["tokens"] > 30
        assert record.probes["attention_sink"] == {"missing": "it has no transformer"}
        assert record.probes["cost"]["gmac"] == 0
        rerun = ("verify", str(tmp_path / "results" / "local" / path), "--rerun", "--model", str(tiny_bert))
        code, out, err = cli(*rerun, "--corpus", str(corpus))
        assert (code, out.split(":")[0]) == (0, "equal"), err
    code, out, err = cli("report", "--table", "efficiency", "--format", "csv")
    assert code == 0, err
    assert "GMAC 0" in cli("report", "--table", "efficiency", "--details")[1]
