"""Encoders as models of mteb: prompts and similarity of a folder, public layout, declared data sets."""

from __future__ import annotations

import json
import random
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import bench
from bench.baselines.external import HuggingFace
from bench.data.mteb_names import load_mteb_lists, parse_task
from bench.encoder import Encoder, PromptedEncoder
from bench.errors import InputError
from bench.eval import mteb_cache
from bench.eval.mteb_cache import check_cached_data, check_declared_data, declared_data_sets
from bench.eval.mteb_model import MtebEncoder
from bench.eval.mteb_predictions import _find_items
from bench.eval.mteb_run import evaluate_mteb
from bench.eval.mteb_setup import import_mteb, silence_mteb
from bench.eval.mteb_tasks import MtebTask, build_mteb_task, load_mteb_suite
from bench.eval.public_encoder import LoadedEncoder
from bench.method_card import BuildContext
from bench.nn.backbone import TransformerEncoder
from bench.nn.encoder_folder import export_encoder
from bench.nn.half_precision import cast_encoder
from bench.nn.model_metadata import read_model_card
from bench.nn.sentence_transformer import SentenceTransformerEncoder
from bench.nn.sum_encoder import SumEncoder
from bench.records.fingerprint import FACTS, compute_record_key, find_fact_differences, machine_facts
from tests.support.cli import Cli, records
from tests.support.folders import prompted_folder
from tests.support.local_suite import WORDS, write_local_suite
from tests.support.messages import missing_facts

TABLES: dict[str, dict[str, Any]] = {
    "TwitterURLCorpus": {
        "sentence1": [f"the {word}" for word in WORDS * 3],
        "sentence2": [
            f"{word} a man {i % 5}" for i, word in enumerate((*WORDS, *WORDS[::-1], *WORDS[3:], *WORDS[:3]))
        ],
        "labels": [int(i % 3 > 0) for i in range(24)],
    },
    "TwentyNewsgroupsClustering": {
        "sentences": [[f"{a} {b}" for a in WORDS for b in WORDS[:5]]],
        "labels": [[i // 10 for i in range(40)]],
    },
    "SummEvalSummarization.v2": {
        "text": [f"the {word} and the city" for word in WORDS],
        "machine_summaries": [[f"the {a} {'here ' * (i % 3)}there" for a in WORDS[:6]] for i in range(8)],
        "human_summaries": [[f"a {word} there", f"{word} in the city"] for word in WORDS],
        "relevance": [[1 + (i * j + j) % 5 for j in range(6)] for i in range(8)],
    },
}
"""What local files can't hold: pair classification, clustering, summarisation."""
INSTRUCT = dict(any="a man ", query="car ", document="station ", STS="the city ", BitextMining="house ")
AUTHORS: dict[str, tuple[dict[str, str], str | None, str]] = {
    "e5": ({"query": "the doctor ", "passage": "a river "}, None, "dot"),
    "bge": ({"query": "the river ", "document": "", "passage": "car "}, None, "cosine"),
    "instruct": (INSTRUCT, "any", "dot"),
    "distance": ({"query": "the doctor ", "document": "a river "}, "query", "euclidean"),
    "manhattan": ({"query": "the doctor ", "Retrieval-document": "a river "}, None, "manhattan"),
}


def folder_of(name: str, tiny_bert: Path, target: Path) -> Path:
    prompts, default, similarity = AUTHORS[name]
    return prompted_folder(tiny_bert, target / name, prompts, default=default, similarity=similarity)


@pytest.fixture(scope="module")
def tasks(tmp_path_factory: pytest.TempPathFactory, mteb: Any) -> Any:
    """A task of every type that mteb has for sentences."""
    with pytest.MonkeyPatch.context() as patch:
        datasets = pytest.importorskip("datasets")

        def load_data(self: Any, **_: Any) -> None:
            table = datasets.Dataset.from_dict(TABLES[self.metadata.name])
            self.dataset = datasets.DatasetDict({"test": table})
            self.data_loaded = True

        for name in TABLES:
            patch.setattr(type(mteb.get_task(name)), "load_data", load_data)
        local = write_local_suite(tmp_path_factory.mktemp("local"))
        _harder(local.parent)
        yield [*load_mteb_suite(f"local:{local}"), *load_mteb_suite(f"mteb:{','.join(TABLES)}")]
        _find_items.cache_clear()


def _harder(folder: Path) -> None:
    """Documents that share words, so that rankings depend on everything."""
    triples = [(i, WORDS[i % 8], WORDS[i * i % 7], WORDS[i // 8]) for i in range(48)]
    corpus = ["id\ttext", *(f"d{i}\t{a} there a {b} {'the ' * (i % 4)}{c}" for i, a, b, c in triples)]
    judged = [f"q{word}\td{i}\t{1 + i % 2}" for j, word in enumerate(WORDS) for i in range(j, 48, 7)]
    pairs = [f"where {a}\t{b} a {c}\t{int(i % 3 == 0)}" for i, a, b, c in triples]
    grades = "query\tdocument\trelevant"
    for name, lines in (("corpus", corpus), ("qrels", [grades, *judged]), ("rank", [grades, *pairs])):
        (folder / f"{name}.tsv").write_text("\n".join(lines) + "\n")


def halved(folder: Path) -> None:
    half = {name: weight.half() for name, weight in load_file(folder / "model.safetensors").items()}
    save_file(half, folder / "model.safetensors", metadata={"format": "pt"})
    settings = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(settings | {"dtype": "float16"}))


def by_mteb(model: Any, tasks: list[MtebTask]) -> dict[str, float]:
    with silence_mteb():
        built = [build_mteb_task(task) for task in tasks]
        run = import_mteb().evaluate(model, built, cache=None, co2_tracker=False, show_progress_bar=False)
    return {result.task_name.removeprefix("Local-"): float(result.get_score()) for result in run.task_results}


def by_bench(encoder: Encoder, tasks: list[MtebTask], folder: Path) -> dict[str, float]:
    run = evaluate_mteb(encoder, tasks, name="bench/x", folder=folder)
    main = [score for score in run.scores if (score.metric, score.subset) == ("main_score", "all")]
    return {score.task: score.value for score in main}


def sentence_transformer(folder: Path, **options: Any) -> Any:
    from sentence_transformers import SentenceTransformer  # takes seconds

    return SentenceTransformer(str(folder), device="cpu", **options)


def check_equal(ours: dict[str, float], theirs: dict[str, float]) -> None:
    assert {name: ours[name] for name in theirs} == pytest.approx(theirs, abs=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(
    "author", ["e5", *(pytest.param(name, marks=pytest.mark.long) for name in ("bge", "instruct"))]
)
def test_folder_scores_are_mtebs(author: str, tasks: list[MtebTask], tiny_bert: Path, tmp_path: Path) -> None:
    folder = folder_of(author, tiny_bert, tmp_path)
    theirs = by_mteb(sentence_transformer(folder), tasks)
    assert len({task.kind for task in tasks}) == len(theirs) == 8
    ours = by_bench(SentenceTransformerEncoder(folder), tasks, tmp_path / "mteb")
    check_equal(ours, theirs)
    (meta,) = (tmp_path / "mteb" / "results" / "bench__x").glob("*/model_meta.json")
    said = json.loads(meta.read_text())
    assert (said["similarity_fn_name"], said["use_instructions"]) == (AUTHORS[author][2], True)
    (folder / "config_sentence_transformers.json").unlink()  # prompts and similarity change scores
    without = by_bench(SentenceTransformerEncoder(folder), tasks, tmp_path / "plain")
    changed = {name for name in theirs if abs(without[name] - ours[name]) > 1e-4}
    assert changed >= {"search", "order"}


@pytest.mark.slow
@pytest.mark.parametrize("author", ["distance", "manhattan"])
def test_similarity_by_distance(author: str, tasks: list[MtebTask], tiny_bert: Path, tmp_path: Path) -> None:
    folder = folder_of(author, tiny_bert, tmp_path)
    pairs = ("STS", "PairClassification", "Summarization")  # mteb: similarity function not specified
    theirs = by_mteb(sentence_transformer(folder), [task for task in tasks if task.kind not in pairs])
    assert len(theirs) == 5
    ours = by_bench(SentenceTransformerEncoder(folder), tasks, tmp_path / "mteb")
    check_equal(ours, theirs)


@pytest.mark.slow
@pytest.mark.parametrize("stored", ["weights", "settings"])
def test_half_precision_folders(stored: str, tasks: list[MtebTask], tiny_bert: Path, tmp_path: Path) -> None:
    """mteb itself computes in half precision unless the script asks for float32."""
    folder = folder_of("e5", tiny_bert, tmp_path)
    if stored == "weights":
        halved(folder)
    else:
        said = {"max_seq_length": 40, "model_args": {"torch_dtype": "float16"}}
        (folder / "sentence_bert_config.json").write_text(json.dumps(said))
    half = sentence_transformer(folder)
    assert next(half.parameters()).dtype.itemsize == 2
    whole = sentence_transformer(folder, model_kwargs={"dtype": "float32"})
    some = [task for task in tasks if task.id in ("pairs", "search")]
    theirs, encoder = by_mteb(whole, some), SentenceTransformerEncoder(folder)
    ours = by_bench(encoder, some, tmp_path / "mteb")
    check_equal(ours, theirs)
    lost = np.abs(half.encode(["the doctor"]) - encoder.encode(["the doctor"])).max()
    assert 0 < lost < 0.01


@pytest.mark.slow
def test_a_plain_folder_with_prompt_options(tasks: list[MtebTask], tiny_bert: Path, tmp_path: Path) -> None:
    """As a sentence-transformers folder with the same prompts, and as its export."""
    prompts = {"query": "the doctor ", "document": "a river ", "any": "a man "}
    folder = prompted_folder(tiny_bert, tmp_path / "st", prompts, default="any", similarity="cosine")
    encoder = hugging_face(
        tiny_bert, prompt='"a man "', query_prompt='"the doctor "', passage_prompt='"a river "', pooling="avg"
    )
    ours = by_bench(encoder, tasks, tmp_path / "hf")
    check_equal(by_bench(SentenceTransformerEncoder(folder), tasks, tmp_path / "mteb"), ours)
    export_encoder(encoder, tmp_path / "out", "# A card\n")
    some = [task for task in tasks if task.id in ("pairs", "search", "order")]
    for again in (bench.load(tmp_path / "out"), sentence_transformer(tmp_path / "out")):
        theirs = by_mteb(again, some)
        check_equal(ours, theirs)


def hugging_face(folder: Path, **options: str) -> Any:
    card = HuggingFace.card
    values = {option.name: option.default for option in card.options} | options
    return HuggingFace().build(BuildContext(values, None, folder, "cpu"))


def test_prompts_by_option(tiny_bert: Path) -> None:
    plain = hugging_face(tiny_bert)
    assert isinstance(plain, TransformerEncoder)
    assert plain.facts["pooling"] == "cls"
    encoder: Any = hugging_face(tiny_bert, prompt='"the "', query_prompt='""', passage_prompt="river")
    assert [isinstance(model, PromptedEncoder) for model in (encoder, plain)] == [True, False]
    texts = ["man", "a doctor in the city"]
    for kind, before in {"": "the ", "query": "", "document": "river"}.items():
        expected = plain.encode([before + text for text in texts])
        np.testing.assert_array_equal(encoder.encode_as(texts, kind), expected)
    np.testing.assert_array_equal(encoder.encode(texts), encoder.encode_as(texts, ""))
    tensor = plain.embed(plain.prepare(["the " + text for text in texts]))
    np.testing.assert_array_equal(encoder.embed(encoder.prepare(texts)).numpy(), tensor.numpy())
    assert encoder.facts["prompt"] == 'any "the ", document "river"'
    assert encoder.facts["prompt_from"] == "the options"
    both = hugging_face(tiny_bert, prompt="the")
    np.testing.assert_array_equal(both.encode_as(texts, "query"), both.encode(texts))
    lowered = cast_encoder(encoder, "bf16")
    assert 0 < np.abs(lowered.encode(texts) - encoder.encode(texts)).max() < 0.2
    for wrong in ('"the', '"a"b', '"', '"\\ud800"'):
        with pytest.raises(InputError, match=r"hf\.prompt: .*JSON"):
            hugging_face(tiny_bert, prompt=wrong)


@pytest.mark.parametrize("half", [False, True])
def test_the_facts_of_a_folder(tiny_bert: Path, tmp_path: Path, half: bool) -> None:
    folder = folder_of("e5", tiny_bert, tmp_path)
    if half:
        halved(folder)
    facts = SentenceTransformerEncoder(folder).facts
    settings = "config_sentence_transformers.json"
    names = facts.keys() - {"dim", "max_length", "modules", "parameters"}
    assert {name: facts[name] for name in names} == {
        "pooling": "mean",
        "pooling_from": "1_Pooling/config.json",
        "prompt": 'query "the doctor "',  # sentence-transformers has an empty prompt for documents
        "prompt_from": settings,
        "similarity": "dot",
        "similarity_from": settings,
        "dtype": "float32",
        "folder_dtype": "float16" if half else "float32",
    }
    (folder / settings).unlink()
    facts = SentenceTransformerEncoder(folder).facts
    plain = facts["similarity"], facts["similarity_from"], facts["prompt"]
    assert plain == ("cosine", "the default", "none")


@pytest.mark.slow
def test_prompts_and_similarity_make_another_revision(tiny_bert: Path, tmp_path: Path) -> None:
    encoders = [SentenceTransformerEncoder(folder_of(name, tiny_bert, tmp_path)) for name in AUTHORS]
    texts = ("", "the", "river")
    encoders += [hugging_face(tiny_bert, query_prompt=text, pooling="avg") for text in texts]
    found = {MtebEncoder(encoder, "bench/x").mteb_model_meta.revision for encoder in encoders}
    assert len(found) == len(encoders)
    assert {len(revision) for revision in found} == {40}


def test_prompts_on_the_command_line(cli: Cli, tiny_bert: Path, tmp_path: Path) -> None:
    asked = f'asked=hf:{tiny_bert}[prompt="of the ",query_prompt="Say\\\\nwhat: ",pooling=avg]'
    run = ("--suite", "toy", "--results", str(tmp_path / "results"))
    assert cli("run", "--methods", f"hf:{tiny_bert}:avg,{asked}", *run)[0] == 0
    found = {record.method: record for record in records(tmp_path).values()}
    plain = next(record for name, record in found.items() if name != "asked")
    assert found["asked"].provenance["encoder"] == plain.provenance["encoder"] | {
        "prompt": 'any "of the ", query "Say\\nwhat: ", document "of the "',
        "prompt_from": "the options",
    }
    assert plain.provenance["encoder"].items() >= {"pooling": "avg", "folder_dtype": "float32"}.items()
    assert found["asked"].score("avg") != plain.score("avg")
    older = replace(plain, options={n: v for n, v in plain.options.items() if "prompt" not in n})
    said = {name: plain.provenance["encoder"][name] for name in ("attention", "dim", "max_length")}
    older = replace(older, provenance=plain.provenance | {"encoder": said})
    assert compute_record_key(older) == compute_record_key(plain) == plain.key  # as older records have it
    assert machine_facts(older) == machine_facts(plain)
    assert find_fact_differences(older, plain, FACTS) == ()
    assert compute_record_key(found["asked"]) != plain.key


TEXTS = ["A man is here.", "", "The doctor and the river"]


@pytest.fixture(scope="module")
def local_tasks(tmp_path_factory: pytest.TempPathFactory) -> list[MtebTask]:
    return load_mteb_suite(f"local:{write_local_suite(tmp_path_factory.mktemp('local'))}")


def check_public_layout(results: Path) -> Any:
    """Check a folder as the tests of embeddings-benchmark/results do; return the model's meta data."""
    from mteb.models import ModelMeta
    from mteb.results import TaskResult
    from mteb.results.task_result import _expand_run_settings_entry

    (meta_file,) = results.glob("*/*/model_meta.json")
    said = json.loads(meta_file.read_text())
    meta = ModelMeta.model_validate_json_resolved(meta_file.read_text())
    folder = meta_file.parent
    assert folder == results / said["name"].replace(" ", "_").replace("/", "__") / said["revision"]
    assert re.fullmatch("[0-9a-f]{40}", said["revision"])
    assert "/" in said["name"]
    entries = [json.loads(line) for line in (folder / "run_settings.jsonl").read_text().splitlines()]
    covered = {key for entry in entries for key, _, _ in _expand_run_settings_entry(entry)}
    files = [file for file in folder.glob("*.json") if file.name != "model_meta.json"]
    for file in files:
        result = TaskResult.from_disk(file)
        assert file.stem == result.task_name
        assert result.mteb_version
        assert int(result.mteb_version.split(".")[0]) >= 2
        blocks = [(split, block) for split, found in result.scores.items() for block in found]
        assert {(result.task_name, split, block["hf_subset"]) for split, block in blocks} <= covered
    assert files
    return meta


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("kind", ["one", "twin"])
def test_an_exported_encoder_is_a_model_of_mteb(
    kind: str, local_tasks: list[MtebTask], tiny_bert: Path, tmp_path: Path, mteb: Any
) -> None:
    part = TransformerEncoder(tiny_bert, "avg")
    encoder = part if kind == "one" else SumEncoder([part, TransformerEncoder(tiny_bert, "cls")])
    about = {"license": "apache-2.0", "training_datasets": ["wiki.txt"]}
    export_encoder(encoder, tmp_path / "exp", "# A card\n", about)
    loaded = bench.load(tmp_path / "exp")
    assert isinstance(loaded, Encoder)
    np.testing.assert_allclose(loaded.encode(TEXTS), encoder.encode(TEXTS), atol=1e-6)
    if kind == "twin":
        assert len(loaded.parts) == 2
    cache = mteb.ResultCache(tmp_path / "cache")
    with silence_mteb():
        run = mteb.evaluate(
            loaded, [build_mteb_task(task) for task in local_tasks], cache=cache, co2_tracker=False
        )
    theirs = {result.task_name.removeprefix("Local-"): result.get_score() for result in run.task_results}
    found = evaluate_mteb(encoder, local_tasks, name="bench/exp", folder=tmp_path / "ours", about=about)
    ours = {score.task: score.value for score in found.scores if score.metric == "main_score"}
    assert theirs == pytest.approx({task.id: ours[task.id] for task in local_tasks}, abs=1e-6)
    whole, pooler = (sum(w.numel() for w in m.parameters()) for m in (part.model, part.model.pooler))
    for folder in (tmp_path / "cache" / "results", tmp_path / "ours" / "results"):
        meta = check_public_layout(folder)
        assert (meta.name, meta.embed_dim, meta.max_tokens) == ("bench/exp", 16, 40)
        assert (meta.license, meta.training_datasets) == ("apache-2.0", {"wiki.txt"})
        assert (meta.similarity_fn_name.value, meta.use_instructions) == ("cosine", False)
        if folder.parent.name == "cache":  # without the pooler, which isn't exported
            assert meta.n_parameters == (whole - pooler) * (1 + (kind == "twin"))
            table = part.model.get_input_embeddings().weight
            assert meta.n_embedding_parameters == table.numel() * (1 + (kind == "twin"))


@pytest.mark.slow
@pytest.mark.usefixtures("mteb")
def test_a_loaded_encoder_leaves_mteb_alone_until_it_is_asked(tiny_bert: Path, tmp_path: Path) -> None:
    export_encoder(TransformerEncoder(tiny_bert), tmp_path / "a model", "# A card\n")
    loaded = bench.load(tmp_path / "a model")
    assert "_model" not in vars(loaded)
    assert (loaded.dim, loaded.facts["pooling_from"], loaded.pooling) == (16, "bench.json", "cls")
    with pytest.raises(TypeError, match="'batch'"):
        loaded.encode(TEXTS, batch=3)
    with pytest.raises(TypeError, match="item 1 is a NoneType"):
        loaded.encode(["a", None])  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="not a single"):
        loaded.encode(TEXTS[0])
    np.testing.assert_array_equal(loaded.encode(np.array(TEXTS)), loaded.encode(TEXTS))
    with pytest.raises(AttributeError, match="nothing"):
        _ = loaded.nothing
    before = repr(random.getstate()), torch.get_rng_state().tolist()
    meta = loaded.mteb_model_meta
    assert (repr(random.getstate()), torch.get_rng_state().tolist()) == before
    assert re.fullmatch(r"bench/a_model-[0-9a-f]{8}", meta.name)
    assert (meta.license, meta.training_datasets) == ("not specified", None)
    assert isinstance(loaded, LoadedEncoder)
    one, other = loaded.encode(TEXTS), loaded.encode(TEXTS[::-1])
    np.testing.assert_allclose(
        np.diag(loaded.similarity(one, other)), loaded.similarity_pairwise(one, other), atol=1e-6
    )


@pytest.mark.parametrize(
    ("card", "expected"),
    [
        ("---\nlicense: mit\ndatasets: [a, b]\n---\nx", {"license": "mit", "training_datasets": ["a", "b"]}),
        ("---\nlicense: [mit]\ndatasets: a\n---\n", {}),
        ("---\nlicense: 'a\n---\n", {}),
        ("---\n- a\n---\n", {}),
        ("no front matter", {}),
        (None, {}),
    ],
)
def test_model_cards(card: str | None, expected: dict[str, Any], tmp_path: Path) -> None:
    if card is not None:
        (tmp_path / "README.md").write_text(card)
    assert read_model_card(tmp_path) == expected


@pytest.mark.slow
@pytest.mark.usefixtures("mteb")
def test_missing_data_sets_are_told_from_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "sets"))
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    suite = "mteb:STS17,BIOSSES,CQADupstackRetrieval"
    tasks = load_mteb_suite(suite)
    with pytest.raises(InputError) as caught:
        check_cached_data(suite, tasks)
    names = ("mteb/sts17-crosslingual-sts", "mteb/biosses-sts")
    facts = (f"--suite {suite}", "14 data sets", *names, "and 9 more", "HF_HUB_OFFLINE=0")
    assert not missing_facts(caught.value, *facts)
    check_declared_data(suite)  # only mteb has the parts of an aggregated task
    with pytest.raises(InputError, match="2 data sets"):
        check_declared_data("mteb:STS17,BIOSSES")
    (tmp_path / "sets" / "mteb___sts17-crosslingual-sts" / "en-en").mkdir(parents=True)
    (tmp_path / "hub" / "datasets--mteb--biosses-sts" / "snapshots").mkdir(parents=True)
    check_cached_data(suite, tasks[:2])
    check_declared_data("mteb:STS17,BIOSSES")
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    check_cached_data(suite, tasks)
    check_declared_data("mteb:STS12")
    assert not mteb_cache.is_offline()


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.usefixtures("mteb")
@pytest.mark.parametrize("name", sorted(load_mteb_lists()))
def test_data_sets_that_sources_declare_are_mtebs(name: str) -> None:
    asked = load_mteb_lists()[name].tasks
    declared = declared_data_sets(asked)
    if name == "unsee":  # it has a task that is made of others
        assert declared is None
    else:
        assert declared == [task.dataset[0] for task in load_mteb_suite(name)]


def test_what_sources_do_not_declare() -> None:
    for text in ("STS17[en-xx]", "STS17@dev", "STS18", "CQADupstackRetrieval", "STS17MultilingualVisualSTS"):
        assert declared_data_sets([parse_task(text)]) is None
    assert declared_data_sets([parse_task("STS17[en-en]@test")]) == ["mteb/sts17-crosslingual-sts"]
