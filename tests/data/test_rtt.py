"""Round-trip translation with tiny Marian models: the copies, their provenance, their use."""

from __future__ import annotations

import json
import shutil
import warnings
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from filelock import FileLock

from bench.cli import round_trip_translation as cli_rtt
from bench.config import profiles
from bench.data.corpus import make_corpus, read_corpus
from bench.data.round_trip_translation import MADE_BY, RoundTrip, Translated
from bench.data.toy_suite import make_toy_task
from bench.encoder import Progress
from bench.errors import InputError
from bench.nn.marian import MarianTranslator, find_translation_model, split_by_limit
from tests.support.cli import Cli, records, refusal
from tests.support.messages import check_error, missing_facts
from tests.support.released import hub_folder
from tests.support.tncse import TINY

SENTENCES = list(dict.fromkeys(sentence for pair in make_toy_task().all_pairs() for sentence in pair))[:60]
LONGEST = 64
SUBS = ("tncse.sub1", "tncse.sub2")


def make_model(folder: Path, seed: int) -> None:
    """Write a model that has half learned to repeat a sentence: its translations differ, and they end."""
    import sentencepiece
    import transformers

    tokenizer_class: Any = transformers.MarianTokenizer
    model_class: Any = transformers.MarianMTModel
    folder.mkdir(parents=True)
    prefix = str(folder / "source")
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(SENTENCES), model_prefix=prefix, vocab_size=120, model_type="bpe",
        hard_vocab_limit=False, bos_id=-1, num_threads=1, minloglevel=2,
    )  # fmt: skip
    (folder / "source.vocab").unlink()
    (folder / "source.model").rename(folder / "source.spm")
    shutil.copy(folder / "source.spm", folder / "target.spm")
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(folder / "source.spm"))
    names = [pieces.id_to_piece(i) for i in range(pieces.get_piece_size())]
    names = ["</s>", *(name for name in names if name != "</s>"), "<pad>"]
    (folder / "vocab.json").write_text(json.dumps({name: i for i, name in enumerate(names)}))
    files = (str(folder / name) for name in ("source.spm", "target.spm", "vocab.json"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tokenizer = tokenizer_class(*files, model_max_length=LONGEST)
    tokenizer.save_pretrained(folder)
    sides = {
        f"{side}_{name}": value
        for side in ("encoder", "decoder")
        for name, value in {"layers": 1, "attention_heads": 2, "ffn_dim": 64}.items()
    }
    pad = len(names) - 1
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        config = transformers.MarianConfig(
            vocab_size=len(names), d_model=32, max_position_embeddings=LONGEST, pad_token_id=pad,
            decoder_start_token_id=pad, init_std=0.1, dropout=0.0, **sides,
        )  # fmt: skip
        model = model_class(config)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        for _ in range(50):
            chosen = [SENTENCES[i] for i in torch.randint(len(SENTENCES), (16,))]
            batch = tokenizer(chosen, padding=True, return_tensors="pt")
            labels = batch["input_ids"].masked_fill(batch["attention_mask"] == 0, -100)
            torch.autograd.backward(model(**batch, labels=labels).loss)
            optimizer.step()
            optimizer.zero_grad()
    model.save_pretrained(folder)


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Models to fr and ru and back; ru's are fr's in the other direction."""
    folder = tmp_path_factory.mktemp("models")
    for seed, (name, other) in enumerate((("en-fr", "ru-en"), ("fr-en", "en-ru"))):
        make_model(folder / f"opus-mt-{name}", seed)
        shutil.copytree(folder / f"opus-mt-{name}", folder / f"opus-mt-{other}")
    return folder


@pytest.fixture
def own_models(models: Path, tmp_path: Path) -> Path:
    """A copy of the models that a test may change."""
    return Path(shutil.copytree(models, tmp_path / "models"))


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text("\n".join(SENTENCES) + "\n")
    return path


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli_rtt, "_CHUNK", {"cpu": 16})


def translator(models: Path, source: str = "en", target: str = "fr", **options: Any) -> MarianTranslator:
    return MarianTranslator(find_translation_model(source, target, models), **options)


def change_bias(folder: Path, token: int, value: float) -> None:
    """Make a model always, or never, give a token."""
    from safetensors.torch import load_file, save_file

    weights = load_file(folder / "model.safetensors")
    weights["final_logits_bias"][0, token] = value
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def watch(monkeypatch: pytest.MonkeyPatch, stop_at: int | None = None) -> list[int]:
    """Record the number of sentences of every translation; interrupt the call ``stop_at``, from 1."""
    real = MarianTranslator.__call__
    calls: list[int] = []

    def call(
        self: MarianTranslator, sentences: Sequence[str], progress: Progress | None = None
    ) -> Translated:
        calls.append(len(sentences))
        if len(calls) == stop_at:
            raise KeyboardInterrupt
        return real(self, sentences, progress)

    monkeypatch.setattr(MarianTranslator, "__call__", call)
    return calls


COPY = Path("out/text.en-fr-en.txt")


@pytest.fixture
def rtt(cli: Cli, own_models: Path, corpus: Path) -> Cli:
    """The command, to French and back."""
    where = ("--corpus", str(corpus), "--models", str(own_models), "--out", "out")
    return partial(cli, "data", "rtt", "--pivots", "fr", *where)


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("beams", [1, 3])
def test_batched_is_one_by_one_to_the_token(models: Path, beams: int) -> None:
    whole = translator(models, beams=beams)
    texts = whole(SENTENCES).texts
    assert len(set(texts)) > 10
    assert [whole([sentence]).texts[0] for sentence in SENTENCES[::3]] == texts[::3]
    assert translator(models, beams=beams, batch_tokens=40)(SENTENCES).texts == texts
    assert whole(SENTENCES[::-1]).texts[::-1] == texts
    assert whole([]).texts == []


@pytest.mark.long
def test_beams_matter_and_the_models_own_settings_do_not(own_models: Path) -> None:
    greedy = translator(own_models)(SENTENCES)
    assert translator(own_models, beams=3)(SENTENCES) != greedy
    own: dict[str, Any] = {"num_beams": 4, "max_length": 5, "do_sample": True, "no_repeat_ngram_size": 1}
    folder = own_models / "opus-mt-en-fr"
    for name in ("generation_config.json", "config.json"):  # older models have them in the latter
        facts = json.loads((folder / name).read_text())
        own |= {"forced_eos_token_id": 0, "bad_words_ids": [[facts["pad_token_id"]]]}
        (folder / name).write_text(json.dumps(facts | own))
        assert translator(own_models)(SENTENCES) == greedy
    (folder / "generation_config.json").unlink()
    assert translator(own_models)(SENTENCES) == greedy


def test_greedy_is_the_best_token_at_each_step(models: Path) -> None:
    made = translator(models)
    for sentence in SENTENCES[::10]:
        source = torch.tensor([made.tokenizer(sentence)["input_ids"]])
        ((limit, _),) = split_by_limit([source.shape[1]], 1)
        target = [made.pad]
        while target[-1] != made.eos and len(target) < min(limit + 1, LONGEST):
            with torch.no_grad():
                scores = made.model(input_ids=source, decoder_input_ids=torch.tensor([target])).logits[0, -1]
            scores[made.pad] = -torch.inf
            target.append(int(scores.argmax()))
        text = made.tokenizer.decode(target, skip_special_tokens=True)
        assert made([sentence]).texts == [" ".join(text.split())]


def test_batches_are_sorted_and_never_mix_limits() -> None:
    lengths = [17, 3, 16, 40, 5, 17, 4]
    assert list(split_by_limit(lengths, 34)) == [
        (48, [1, 6, 4]),  # 3, 4, 5: with 16 they would be 64 tokens
        (48, [2]),
        (80, [0, 5]),
        (112, [3]),  # longer than the budget, alone
    ]
    assert list(split_by_limit([], 10)) == []


def test_what_is_cut_is_counted(own_models: Path) -> None:
    long = " ".join(SENTENCES[:8])
    done = translator(own_models)([long, SENTENCES[0]])
    assert (done.truncated, done.texts[1]) == (1, translator(own_models)([SENTENCES[0]]).texts[0])
    change_bias(own_models / "opus-mt-en-fr", 0, -1000.0)
    assert translator(own_models)(SENTENCES[:5]).unfinished == 5


def test_a_model_of_several_languages_needs_one(own_models: Path) -> None:
    path = own_models / "opus-mt-en-fr" / "vocab.json"
    vocabulary = json.loads(path.read_text())
    piece = min(vocabulary, key=lambda name: (name[0].isascii(), -len(name)))
    renamed = {">>fra<<" if name == piece else name: index for name, index in vocabulary.items()}
    path.write_text(json.dumps(renamed))
    check_error(lambda: translator(own_models), "--pivots", "opus-mt-en-fr", "PIVOT:CODE", "fra")
    check_error(lambda: translator(own_models, code="oci"), "'oci'", "opus-mt-en-fr")
    rows, _ = translator(own_models, code="fra")._tokenize_sentences(SENTENCES[:2])
    assert [row[0] for row in rows] == [renamed[">>fra<<"]] * 2
    check_error(lambda: translator(own_models, "fr", "en", code="fra"), "without a code")


@pytest.mark.parametrize(
    ("lost", "facts"),
    [
        ("", ("no folder 'opus-mt-fr-en'", "source.spm", "hf download Helsinki-NLP/opus-mt-fr-en")),
        ("source.spm", ("opus-mt-fr-en", "no source.spm")),
        ("config.json", ("not a model folder",)),
        ("model.safetensors", ("has no weights",)),
    ],
)
def test_missing_models_are_named_first(
    rtt: Cli, own_models: Path, monkeypatch: pytest.MonkeyPatch, lost: str, facts: tuple[str, ...]
) -> None:
    folder = own_models / "opus-mt-fr-en"
    if lost:
        (folder / lost).unlink()
    else:
        shutil.rmtree(folder)
    calls = watch(monkeypatch)
    assert not missing_facts(refusal(rtt), f"--models {own_models}", *facts)
    assert calls == []


def test_models_from_the_hubs_cache(cli: Cli, models: Path, corpus: Path, hub: Path, tmp_path: Path) -> None:
    given = ("data", "rtt", "--pivots", "fr", "--corpus", str(corpus), "--out", "out")
    err = refusal(cli, *given)
    assert not missing_facts(err, "'Helsinki-NLP/opus-mt-en-fr'", "hf download", "local cache", "--models")
    expected = [("Helsinki-NLP/opus-mt-en-fr", "a" * 40), ("Helsinki-NLP/opus-mt-fr-en", "b" * 40)]
    for name, revision in expected:
        hub_folder(hub, name, revision, models / Path(name).name)
    code, _, err = cli(*given)
    assert code == 0, err
    facts = json.loads((tmp_path / "out" / "text.en-fr-en.json").read_text())
    assert [(model["name"], model["revision"]) for model in facts["models"]] == expected


def test_weights_are_never_unpickled(own_models: Path, tmp_path: Path) -> None:
    class Payload:
        def __reduce__(self) -> tuple[Any, ...]:
            return (Path.touch, (tmp_path / "touched",))

    folder = own_models / "opus-mt-en-fr"
    (folder / "model.safetensors").unlink()
    torch.save({"model.shared.weight": Payload()}, folder / "pytorch_model.bin")
    check_error(lambda: translator(own_models), "can't be loaded", kind=InputError)
    assert not (tmp_path / "touched").exists()


def test_a_pickled_state_dict_of_tensors_is_loaded(own_models: Path) -> None:
    from safetensors.torch import load_file

    expected = translator(own_models)(SENTENCES[:9])
    folder = own_models / "opus-mt-en-fr"
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    assert translator(own_models)(SENTENCES[:9]) == expected


def test_other_or_partial_models_are_refused(own_models: Path, tiny_bert: Path) -> None:
    from safetensors.torch import load_file, save_file

    folder = own_models / "opus-mt-en-fr"
    weights = load_file(folder / "model.safetensors")
    del weights[next(name for name in weights if name.endswith("decoder.layers.0.fc1.weight"))]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    check_error(lambda: translator(own_models), "1 weight(s) are missing", "layers.0.fc1", kind=InputError)
    shutil.copy(tiny_bert / "config.json", folder / "config.json")
    check_error(lambda: translator(own_models), "type is bert", "Marian model", kind=InputError)


def test_the_package_is_named(rtt: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bench.nn.marian.find_spec", lambda name: None)
    assert not missing_facts(refusal(rtt), "package sentencepiece", "pip install 'cse-bench[rtt]'")


def test_both_sentencepiece_models_are_in_the_fingerprint(own_models: Path) -> None:
    hashes = {find_translation_model("en", "fr", own_models).sha256}
    for name in ("source.spm", "target.spm", "generation_config.json"):
        with (own_models / "opus-mt-en-fr" / name).open("ab") as stream:
            stream.write(b" ")
        hashes.add(find_translation_model("en", "fr", own_models).sha256)
    assert len(hashes) == 4


@pytest.mark.long
def test_copies_and_their_provenance(
    rtt: Cli, models: Path, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, out, err = rtt("--pivots", "fr,ru")
    assert code == 0, err
    files = ["out/text.en-fr-en.txt", "out/text.en-ru-en.txt"]
    assert [line.split(":")[0] for line in out.splitlines()] == files
    there = translator(models)(SENTENCES)
    back = translator(models, "fr", "en")(there.texts)
    expected = back.texts
    assert all([*there.texts, *expected])
    assert COPY.read_text() == "\n".join(expected) + "\n"
    assert COPY.read_text() != corpus.read_text()
    assert COPY.read_text() != Path("out/text.en-ru-en.txt").read_text()
    facts = json.loads(COPY.with_suffix(".json").read_text())
    assert str(tmp_path) not in json.dumps(facts)
    assert facts["made_by"] == MADE_BY
    text = read_corpus(corpus)
    assert facts["corpus"] == {"name": "text.txt", "sha256": text.sha256, "lines": 60}
    assert facts["pivot"] == "fr"
    assert facts["models"] == [
        {"name": f"opus-mt-{a}-{b}", "sha256": find_translation_model(a, b, models).sha256, "revision": None}
        for a, b in (("en", "fr"), ("fr", "en"))
    ]
    numbers = {"beams": 1, "batch_tokens": 4096, "chunk": 1024, "threads": 1}
    words = {"code": None, "decoding": "greedy", "device": "cpu", "precision": "float32"}
    assert facts["settings"] == numbers | words
    assert facts["versions"]["torch"] == torch.__version__
    assert set(facts["versions"]) == {"bench", "python", "torch", "transformers", "sentencepiece"}
    counts = {"lines": 60, "empty": 0}
    for hop, done in (("there", there), ("back", back)):
        counts |= {f"truncated_{hop}": done.truncated, f"unfinished_{hop}": done.unfinished}
    sha256 = make_corpus("", expected).sha256
    assert facts["copy"] == {"file": "text.en-fr-en.txt", "sha256": sha256, **counts}
    assert facts["seconds"] > 0

    calls = watch(monkeypatch)
    code, again, err = rtt("--pivots", "fr,ru")
    assert (code, again, calls) == (0, out, [])
    assert [line.split(":")[0] for line in err.splitlines() if "already" in line] == files
    names = {path.name for path in (tmp_path / "out").iterdir() if not path.name.endswith(".lock")}
    assert names == {f"text.en-{pivot}-en.{kind}" for pivot in ("fr", "ru") for kind in ("txt", "json")}


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.usefixtures("small_chunks")
def test_an_interrupted_copy_resumes(rtt: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    assert rtt("--out", "whole")[0] == 0
    expected = Path("whole/text.en-fr-en.txt").read_bytes()
    with monkeypatch.context() as patch:
        watch(patch, stop_at=6)  # on the way back of the third part
        code, out, err = rtt()
    assert (code, out) == (130, "")
    assert "resume" in err
    assert not COPY.exists()
    assert not COPY.with_suffix(".json").exists()
    parts = sorted(COPY.parent.glob(".*.parts/*"))
    assert [part.name for part in parts] == ["000000.json", "000001.json"]
    parts[0].write_text(parts[0].read_text().replace(SENTENCES[0][:3], "xyz", 1)[:-1])  # a damaged one
    calls = watch(monkeypatch)
    code, out, err = rtt()
    assert (code, "16 of 60 sentences" in err) == (0, True), err
    assert calls == [16, 16, 16, 16, 12, 12]
    assert COPY.read_bytes() == expected
    assert not list(COPY.parent.glob(".*.parts"))


@pytest.mark.slow
@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize(
    "other",
    ["models", *(pytest.param(name, marks=pytest.mark.long) for name in ("settings", "corpus", "versions"))],
)
def test_parts_of_other_origin_are_ignored(
    rtt: Cli, own_models: Path, corpus: Path, monkeypatch: pytest.MonkeyPatch, other: str
) -> None:
    with monkeypatch.context() as patch:
        watch(patch, stop_at=4)
        assert rtt()[0] == 130
    if other == "models":
        change_bias(own_models / "opus-mt-fr-en", 3, 0.5)
    elif other == "corpus":
        corpus.write_text(corpus.read_text().replace(SENTENCES[-1], "another"))
    elif other == "versions":
        monkeypatch.setattr("bench.cli.round_trip_translation.metadata.version", lambda name: "0.0.1")
    calls = watch(monkeypatch)
    code, _, err = rtt(*(("--beams", "2") if other == "settings" else ()))
    assert code == 0, err
    assert sum(calls) == 120
    (folder,) = COPY.parent.glob(".*.parts")
    assert not missing_facts(err, folder.name, "not used")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "facts"),
    [
        ("settings", ("made otherwise", "beams then 1, now 2", "greedy, now beam")),
        ("models", ("made otherwise", "other models")),
        ("corpus", ("made otherwise", "other corpus")),
        ("copy", ("changed since",)),
        ("provenance", ("not made by",)),
        ("broken", ("provenance", "can't be read")),
        ("lock", ("another process",)),
        ("file", ("can't be written",)),
    ],
)
def test_nothing_is_replaced(
    rtt: Cli, own_models: Path, corpus: Path, change: str, facts: tuple[str, ...]
) -> None:
    assert rtt()[0] == 0
    extra = {"settings": ("--beams", "2"), "file": ("--out", "file")}.get(change, ())
    lock = FileLock("out/.text.en-fr-en.lock")
    if change == "models":
        change_bias(own_models / "opus-mt-fr-en", 3, 0.5)
    elif change == "corpus":
        corpus.write_text(corpus.read_text() + "another\n")
    elif change == "copy":
        COPY.write_text(f"x{COPY.read_text()}")
    elif change == "provenance":
        COPY.with_suffix(".json").unlink()
    elif change == "broken":
        COPY.with_suffix(".json").write_text('{"made_by": "bench data rtt"}')
    elif change == "lock":
        COPY.unlink()
        lock.acquire()
    elif change == "file":
        Path("file").write_text("")
    before = COPY.read_bytes() if COPY.exists() else None
    err = refusal(rtt, *extra)
    lock.release()
    assert not missing_facts(err, *facts)
    assert (COPY.read_bytes() if COPY.exists() else None) == before


@pytest.mark.parametrize("hop", ["en-fr", "fr-en"])
def test_an_empty_translation_keeps_the_sentence(rtt: Cli, own_models: Path, corpus: Path, hop: str) -> None:
    change_bias(own_models / f"opus-mt-{hop}", 0, 1000.0)
    code, _, err = rtt()
    assert (code, missing_facts(err, COPY.name, "60 of 60 sentences", "empty")) == (0, [])
    assert COPY.read_text() == corpus.read_text()
    assert json.loads(COPY.with_suffix(".json").read_text())["copy"]["empty"] == 60


def test_one_empty_translation_does_not_shift_the_others(tmp_path: Path) -> None:
    def hop(empty: str, change: str, **cut: int) -> Any:
        def translate(sentences: Sequence[str], progress: Progress) -> Translated:
            progress(len(sentences))
            return Translated(["" if text == empty else change.format(text) for text in sentences], **cut)

        return translate

    trip = RoundTrip(make_corpus("t.txt", list("abcde")), "xx", tmp_path, [], {}, {}, chunk=3)
    seen: list[int] = []
    facts = trip.run(lambda: (hop("b", "{0}{0}", truncated=1), hop("dd", "{}.", unfinished=2)), seen.append)
    assert trip.text.read_text() == "aa.\nb\ncc.\nd\nee.\n"
    counts = {name: facts["copy"][name] for name in ("empty", "truncated_there", "unfinished_back")}
    assert counts == {"empty": 2, "truncated_there": 2, "unfinished_back": 4}
    assert sum(seen) == 10  # two a sentence


def test_cut_sentences_are_counted(rtt: Cli, own_models: Path, corpus: Path) -> None:
    corpus.write_text(" ".join(SENTENCES[:8]) + f"\n{SENTENCES[0]}\n")
    change_bias(own_models / "opus-mt-fr-en", 0, -1000.0)
    code, _, err = rtt()
    facts = (COPY.name, "1 of 2 sentences", "too long", "2 of 2 translations back", "cut")
    assert (code, missing_facts(err, *facts)) == (0, [])


def test_bad_pivots_and_two_texts_are_refused(rtt: Cli) -> None:
    for pivots in ("fr,fr", "en", "../fr", "fr:"):
        facts = (f"'{pivots.split(',')[0]}' in '{pivots}'", "not a pivot")
        assert not missing_facts(refusal(rtt, "--pivots", pivots), *facts)
    assert not missing_facts(refusal(rtt, "--profile", "minilm"), "--corpus FILE", "--profile NAME")


def test_the_text_of_a_profile(
    cli: Cli, models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = ("data", "rtt", "--pivots", "fr", "--models", str(models), "--out", "out", "--profile")
    assert not missing_facts(refusal(cli, *given, "mini"), "profile 'mini'", "copies")
    few = replace(profiles.load_profile("minilm"), corpus={"file": "few.txt", "exclude_lines": [2, 3]})
    monkeypatch.setattr(profiles, "load_profile", lambda name: few)
    (tmp_path / "few.txt").write_text("\n".join(SENTENCES[:6]) + "\n")
    code, _, err = cli(*given, "minilm", "--data", str(tmp_path))
    assert code == 0, err
    facts = json.loads((tmp_path / "out" / "few.en-fr-en.json").read_text())
    kept = make_corpus("few.txt", [SENTENCES[0], *SENTENCES[3:6]])
    assert facts["corpus"] == {"name": "few.txt", "sha256": kept.sha256, "lines": 4}


def quick(*stages: str) -> list[str]:
    """Options of one step each."""
    steps = {"steps": 1, "eval_every": 1, **TINY}
    settings = ((stage, name, value) for stage in stages for name, value in steps.items())
    return [word for stage, name, value in settings for word in ("--set", f"{stage}.{name}={value}")]


@pytest.fixture
def copies(tmp_path: Path, corpus: Path) -> tuple[Path, Path]:
    """Two ready copies without provenance: words doubled, words reversed."""
    paths = tmp_path / "a.txt", tmp_path / "b.txt"
    paths[0].write_text("".join(f"{s} {s}\n" for s in SENTENCES))
    paths[1].write_text("".join(f"{' '.join(s.split()[::-1])}\n" for s in SENTENCES))
    return paths


@pytest.fixture
def run(cli: Cli, tiny_bert: Path, corpus: Path) -> Cli:
    """A short run of tncse."""
    where = ("--suite", "toy", "--backbone", str(tiny_bert), "--corpus", str(corpus), "--dev", "toy")
    return partial(cli, "run", "--methods", "tncse", "--seeds", "1", *where, *quick("tncse", *SUBS))


def as_options(a: Path, b: Path) -> tuple[str, ...]:
    return ("--copy", f"a={a}", "--copy", f"b={b}")


@pytest.mark.slow
def test_a_run_learns_from_copies(run: Cli, tmp_path: Path, copies: tuple[Path, Path]) -> None:
    assert run(*as_options(*copies))[0] == 0
    assert run("--set", "tncse.rtt=none", "--campaign", "none")[0] == 0
    (record,) = records(tmp_path).values()
    (plain,) = records(tmp_path, "none").values()
    stages = record.training["stages"]
    for role, path in zip(("sub1", "sub2"), copies, strict=True):
        assert stages[role]["text"] == {"name": path.name, "sha256": read_corpus(path).sha256}
        assert stages[role]["key"] != plain.training["stages"][role]["key"]
    assert "text" not in stages["joint"]
    assert record.key != plain.key
    assert record.scores != plain.scores

    swapped = as_options(*copies[::-1])
    changed = "text of stage sub1"
    code, _, err = run(*swapped)
    assert (code, changed in err) == (1, True), err
    code, _, err = run(*swapped, "--seeds", "2")
    assert (code, missing_facts(err, "seed 1", "another specification", changed)) == (1, [])
    assert run(*swapped, "--campaign", "swapped")[0] == 0
    (other,) = records(tmp_path, "swapped").values()
    assert other.scores != record.scores


def test_rerun_with_copies(
    cli: Cli, run: Cli, tmp_path: Path, tiny_bert: Path, corpus: Path, copies: tuple[Path, Path]
) -> None:
    assert run(*as_options(*copies))[0] == 0
    (path,) = (tmp_path / "results" / "local").glob("*/*/*/*.json")
    given = ("verify", str(path), "--rerun", "--model", str(tiny_bert), "--corpus", str(corpus))
    assert not missing_facts(refusal(cli, *given), "sub1: a.txt", "sub2: b.txt", "--copy NAME=FILE")
    assert "text of stage sub1" in refusal(cli, *given, *as_options(*copies[::-1]), code=3)
    code, out, err = cli(*given, *as_options(*copies))
    assert (code, out.startswith("equal")) == (0, True), err


def test_unused_copies_change_nothing(run: Cli, copies: tuple[Path, Path]) -> None:
    sets = quick("simcse")
    assert run(*sets, "--methods", "simcse,tncse", *as_options(*copies))[0] == 0
    code, out, err = run(*sets, "--methods", "simcse,tncse[rtt=none]", "--dry-run")
    assert (code, "1 of 2 cells to run" in out) == (0, True), err


def test_copies_are_read_back(rtt: Cli, run: Cli, corpus: Path) -> None:
    assert rtt("--pivots", "fr,ru")[0] == 0
    again = (*as_options(COPY, Path("out/text.en-ru-en.txt")), "--dry-run")
    code, out, err = run(*again)
    assert (code, missing_facts(out, "1 of 1 cells", "3 training stages")) == (0, []), err
    COPY.write_text(f"x{COPY.read_text()}")
    assert not missing_facts(refusal(run, *again), "changed since", "expected sha256")
    corpus.write_text("\n".join(SENTENCES[::-1]) + "\n")
    assert not missing_facts(refusal(run, *again), "another text (sha256", "expected text.txt, sha256")


COUNTS = "lines|text.txt|60 sentences"
LINES = "".join(f"{s}\n" for s in SENTENCES).encode()


@pytest.mark.parametrize(
    ("content", "beside", "facts"),
    [
        (LINES[:-1], "", ""),  # an unfinished last line
        (LINES.replace(b"\n", b"\r\n"), "", ""),
        (LINES, '{"made_by": "hand"}', ""),
        (LINES, "{", "a.json|provenance|JSONDecodeError"),
        (LINES + b"one more\n", "", f"61 {COUNTS}"),
        (LINES + b"\n", "", f"61 {COUNTS}"),
        (b"", "", f"0 {COUNTS}"),
        (LINES.replace(SENTENCES[1].encode(), b" "), "", "a.txt:2|is empty"),
        (LINES.replace(SENTENCES[2].encode(), b"\xff"), "", "a.txt:3|not utf-8"),
    ],
)
def test_ready_copies_are_checked(
    run: Cli, copies: tuple[Path, Path], content: bytes, beside: str, facts: str
) -> None:
    copies[0].write_bytes(content)
    if beside:
        copies[0].with_suffix(".json").write_text(beside)
    code, _, err = run(*as_options(*copies), "--dry-run")
    assert (code, err.count("\n")) == ((2, 1) if facts else (0, 0))
    assert not missing_facts(err, *facts.split("|"))


@pytest.mark.parametrize(
    ("given", "facts"),
    [
        ("", "'sub1'|--copy a=FILE|bench data rtt|rtt=none"),
        ("a.txt", "'a.txt'|NAME=FILE"),
        ("a=", "'a='|NAME=FILE"),
        ("a=a.txt a=b.txt", "'a'|twice"),
        ("a=nowhere.txt", "--copy a=nowhere.txt|No such file"),
        ("a=a.txt", "'sub2'|round-trip translation"),
        ("a=a.txt b=b.txt fr=a.txt", "--copy fr=a.txt|copy 'fr'|a, b"),
    ],
)
@pytest.mark.usefixtures("copies")
def test_missing_or_bad_copies(run: Cli, given: str, facts: str) -> None:
    options = [word for copy in given.split() for word in ("--copy", copy)]
    assert not missing_facts(refusal(run, *options), *facts.split("|"))


@pytest.mark.usefixtures("copies")
def test_a_copy_that_no_stage_reads(cli: Cli, run: Cli, tiny_bert: Path) -> None:
    command = partial(run, "--set", "tncse.rtt=none")
    assert not missing_facts(refusal(command, "--copy", "a=a.txt"), "--copy a=a.txt", "copy 'a'")
    untrained = ("run", "--methods", "untrained", "--suite", "toy", "--backbone", str(tiny_bert))
    code, _, err = cli(*untrained, "--copy", "a=a.txt")
    assert (code, err.count("note: --copy a=a.txt: not used")) == (0, 1)
