"""Prompts and PromptBERT: templates, denoising, a step against a transcription, training, export."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from torch import Tensor
from transformers import PreTrainedTokenizerFast, RobertaConfig, RobertaModel

import bench
from bench.baselines.promptbert import name_vector_tokens, select_view_templates
from bench.errors import InputError
from bench.method_card import BuildContext, OptionValue
from bench.nn.backbone import TransformerEncoder, load_backbone
from bench.nn.denoising import (
    DenoisedEncoder,
    build_bare_templates,
    check_positions,
    compute_template_noise,
)
from bench.nn.dropout import set_dropout
from bench.nn.encoder_folder import export_encoder, load_encoder
from bench.nn.prompt_template import Prompt
from bench.registry import discover
from bench.training.batch_encoding import batch_mask_states, token_batch
from tests.support.cli import Cli, records
from tests.support.messages import missing_facts
from tests.support.steps import gradients_of, nce_by_loops, objective_of, same_step
from tests.support.training import SENTENCES, options_of, stages_of, toy_score, train_alone

OF = 'This sentence of "{sentence}" means{mask}.'
BARE = '[CLS] this sentence of " {} " means [MASK] . [SEP]'


options = partial(options_of, "promptbert")


def tower(folder: Path) -> tuple[Any, Any]:
    """A model in float64 without dropout, in train mode, and its tokenizer."""
    model, tokenizer = load_backbone(folder)
    set_dropout(model, 0.0)
    return model.double().train(), tokenizer


@pytest.fixture(scope="session")
def byte_roberta(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """RoBERTa's kind of tokenizer, characters only, and a random RoBERTa that counts positions from 2."""
    folder = tmp_path_factory.mktemp("bytes") / "roberta"
    special = {"cls": "<s>", "pad": "<pad>", "sep": "</s>", "unk": "<unk>", "mask": "<mask>"}
    tokens = [*special.values(), *sorted(pre_tokenizers.ByteLevel.alphabet()), "Ġ:", "Ġ'", "Ġa"]
    merges = [("Ġ", ":"), ("Ġ", "'"), ("Ġ", "a")]
    backend = Tokenizer(models.BPE({token: i for i, token in enumerate(tokens)}, merges))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    ends = [("<s>", 0), ("</s>", 2)]
    backend.post_processor = processors.TemplateProcessing(single="<s> $A </s>", special_tokens=ends)
    make: Any = PreTrainedTokenizerFast
    names = {f"{name}_token": token for name, token in special.items()}
    make(tokenizer_object=backend, model_max_length=160, **names).save_pretrained(folder)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        config = RobertaConfig(
            **{"vocab_size": len(tokens), "hidden_size": 16, "num_hidden_layers": 2, "pad_token_id": 1},
            **{"num_attention_heads": 2, "intermediate_size": 32, "max_position_embeddings": 170},
            **{"type_vocab_size": 1, "initializer_range": 0.5},
        )
        RobertaModel(config, add_pooling_layer=False).save_pretrained(folder)
    return folder


def test_the_blank_before_a_sentence_is_read_with_its_first_word(byte_roberta: Path) -> None:
    tokenizer = load_backbone(byte_roberta)[1]
    apart = Prompt(tokenizer, "This sentence : ' {sentence} ' means{mask}.").rows(["a cat"], 160)[0]
    whole = tokenizer("This sentence : ' a cat ' means<mask>.")["input_ids"]
    assert apart == whole
    assert "Ġa" in tokenizer.convert_ids_to_tokens(apart)
    close = Prompt(tokenizer, "This sentence : '{sentence} ' means{mask}.").rows(["a cat"], 160)[0]
    joined = tokenizer.convert_ids_to_tokens(close)
    assert joined[joined.index("Ġ'") + 1] == "a"
    assert len(close) == len(whole)


@pytest.mark.parametrize(
    ("template", "sentence", "expected"),
    [
        (OF, "The man", BARE.format("the man")),
        (OF, "", BARE.replace(" {}", "").format()),
        (OF, "the [MASK] man", BARE.format("the man")),  # one mask a row, whatever the text holds
        (OF.replace("}", ".}", 1), "the man", BARE.format("the man .")),
        ("{mask} of {sentence}", "man", "[CLS] [MASK] of man [SEP]"),
    ],
)
def test_rows(tiny_bert: Path, template: str, sentence: str, expected: str) -> None:
    tokenizer = load_backbone(tiny_bert)[1]
    row = Prompt(tokenizer, template).rows([sentence], 40)[0]
    assert tokenizer.convert_ids_to_tokens(row) == expected.split()


def test_rows_are_cut_within_the_template(tiny_bert: Path) -> None:
    prompt = Prompt(load_backbone(tiny_bert)[1], OF)
    assert prompt.length == 10
    rows = prompt.rows(["man", "the doctor " * 40, ""], 14)
    assert [len(row) for row in rows] == [11, 14, 10]
    assert rows[1][:5] == rows[0][:5]
    assert rows[1][-5:] == rows[0][-5:] == rows[2][-5:]
    assert prompt.rows([], 14) == []
    with pytest.raises(InputError, match="10 tokens of 10"):
        prompt.rows(["man"], 10)


@pytest.mark.parametrize(
    "template",
    ["{sentence}", "{mask}", "{sentence}{sentence.}{mask}", "{sentence,}{mask}", "[MASK]{sentence}{mask}"],
)
def test_unusable_templates(tiny_bert: Path, template: str) -> None:
    tokenizer = load_backbone(tiny_bert)[1]
    with pytest.raises(InputError, match="a tokenizer with a mask token"):
        Prompt(tokenizer, template)
    tokenizer.mask_token = None
    with pytest.raises(InputError, match="a tokenizer with a mask token"):
        Prompt(tokenizer, OF)


def test_another_mask_token_needs_a_template_of_ones_own() -> None:
    with pytest.raises(InputError) as caught:
        select_view_templates(options(), "?")
    assert not missing_facts(caught.value, "'?'", "[MASK], <mask>")
    given = options(template="{sentence}{mask}", template2="{mask}{sentence}")
    assert select_view_templates(given, "?") == ["{sentence}{mask}", "{mask}{sentence}"]


@pytest.mark.parametrize(
    ("stop", "sentence", "expected"),
    [
        ("", "a man", "a man"),
        (".", "a man", "a man."),
        (".", "a man.", "a man."),
        (".", 'a "man"', 'a "man"'),
        (".", "a man!", "a man!."),  # as PromptBERT's evaluation does
        (".", "", ""),
        (" .", "a man", "a man ."),
        (" .", "a man)", "a man)"),
        (" .", "a man. ", "a man. "),
    ],
)
def test_full_stops(tiny_bert: Path, stop: str, sentence: str, expected: str) -> None:
    prompt = Prompt(load_backbone(tiny_bert)[1], f"{{sentence{stop}}} means {{mask}}")
    assert prompt.finished(sentence) == expected


def noise_of(model: Any, prompt: Prompt, lengths: Sequence[int], positions: str = "released") -> Tensor:
    """delta(l) of each length l; of a row its length alone matters."""
    templates = build_bare_templates(model, prompt, [[0] * (prompt.length + n) for n in lengths], positions)
    return compute_template_noise(model, templates, prompt.tokenizer.mask_token_id)


@pytest.mark.parametrize("name", ["tiny_bert", "byte_roberta"])
def test_noise_is_the_bare_templates_mask_state(name: str, request: pytest.FixtureRequest) -> None:
    """delta(0), without dropout; released positions count from 0, which in RoBERTa's kind is elsewhere."""
    model, tokenizer = tower(request.getfixturevalue(name))
    prompt = Prompt(tokenizer, "auto")
    ids = [tokenizer.cls_token_id, *prompt.before, *prompt.after, tokenizer.sep_token_id]
    bare = model(input_ids=torch.tensor([ids])).last_hidden_state[0, ids.index(tokenizer.mask_token_id)]
    aligned, released = (noise_of(model, prompt, [0], way)[0] for way in ("aligned", "released"))
    torch.testing.assert_close(aligned, bare, rtol=1e-9, atol=1e-9)
    assert torch.allclose(released, bare) == (name == "tiny_bert")
    near, far = noise_of(model, prompt, [0, 7])
    assert float((near - far).detach().abs().max()) > 1e-3  # a length counts, whatever the batch
    torch.testing.assert_close(far, noise_of(model, prompt, [7])[0])
    # released delta_no_position: in training dropout alone tells its rows apart
    unshifted = noise_of(model, prompt, [3, 0, 7], "unshifted")
    torch.testing.assert_close(unshifted, noise_of(model, prompt, [0, 0, 0]))
    with pytest.raises(ValueError, match="'mine'; expected one of released, aligned, unshifted"):
        noise_of(model, prompt, [0], "mine")

    class Other(torch.nn.Module):
        def forward(self, input_ids: Tensor) -> Tensor:
            return input_ids

    with pytest.raises(InputError, match="Other"):  # it takes no position ids
        check_positions(Other())


def test_denoised_takes_away_each_rows_own_length(tiny_bert: Path) -> None:
    model, tokenizer = tower(tiny_bert)
    prompt = Prompt(tokenizer, OF)
    rows = prompt.rows([*SENTENCES, "", "a man is singing"], 40)
    states = batch_mask_states(model, token_batch(rows, 0, model, once=False), tokenizer.mask_token_id)
    templates = build_bare_templates(model, prompt, rows)
    found = states - compute_template_noise(model, templates, tokenizer.mask_token_id)
    for row, state, clean in zip(rows, states, found, strict=True):
        length = len(row) - 10  # attended tokens less the template's
        torch.testing.assert_close(clean, state - noise_of(model, prompt, [length])[0])
    assert float(found[len(SENTENCES)].detach().abs().max()) < 1e-12  # nothing but the template
    encoder = DenoisedEncoder((model.float(), tokenizer), OF)
    vectors = encoder.encode([*SENTENCES, "", "a man is singing"])
    np.testing.assert_allclose(vectors, found.detach().numpy(), rtol=1e-3, atol=1e-4)
    plain = TransformerEncoder((model, tokenizer), "mask", template=OF)
    np.testing.assert_allclose(plain.encode(SENTENCES), states[:4].detach().numpy(), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", ["tiny_bert", "byte_roberta"])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"denoising": False},
        {"noise_gradient": False},
        {"noise_positions": "unshifted"},
        {"noise_gradient": False, "noise_positions": "unshifted"},
    ],
)
def test_a_step_by_hand(name: str, changes: dict[str, OptionValue], request: pytest.FixtureRequest) -> None:
    """Loss and gradient: each row alone in a forward of its own, delta of each row by itself."""
    folder = request.getfixturevalue(name)
    made, batch, tokenizer = objective_of("promptbert", folder, max_length=12, **changes)
    given = options(**changes)
    shifted, learning = given["noise_positions"] == "released", bool(given["noise_gradient"])
    model, views = made.encoder, []
    for prompt in made.prompts:
        front = [tokenizer.cls_token_id, *prompt.before]
        back = [*prompt.after, tokenizer.sep_token_id]
        vectors = []
        for sentence in SENTENCES:
            subwords = tokenizer(sentence, add_special_tokens=False)["input_ids"][:12]
            row = torch.tensor([[*front, *subwords, *back]])
            place = row[0].tolist().index(tokenizer.mask_token_id)
            h = model(input_ids=row).last_hidden_state[0, place]
            if given["denoising"]:
                shift = len(front) + (len(subwords) if shifted else 0)
                places = [*range(len(front)), *(shift + i for i in range(len(back)))]
                bare = torch.tensor([[*front, *back]])
                with torch.set_grad_enabled(learning):
                    states = model(input_ids=bare, position_ids=torch.tensor([places])).last_hidden_state[0]
                h = h - states[bare[0].tolist().index(tokenizer.mask_token_id)]
            vectors.append(torch.tanh(made.head.weight @ h + made.head.bias))
        views.append(vectors)
    same_step(made, made(batch), nce_by_loops(views[0], views[1]), rel=1e-8, least=30)


COLON = 'This sentence : "{sentence}" means{mask}.'
VECTORS = "[PROMPT1][PROMPT2][PROMPT3][PROMPT4]{sentence}[PROMPT5][PROMPT6]{mask}[PROMPT7]"


def transform(weights: dict[str, Tensor], h: Tensor) -> Tensor:
    """Dense layer, GELU and LayerNorm of a BertForMaskedLM's weights."""
    name = "cls.predictions.transform."
    h = weights[f"{name}dense.weight"] @ h + weights[f"{name}dense.bias"]
    h = h * (1 + torch.erf(h / 2**0.5)) / 2
    h = (h - h.mean()) / (h.var(unbiased=False) + 1e-12).sqrt()
    return h * weights[f"{name}LayerNorm.weight"] + weights[f"{name}LayerNorm.bias"]


@pytest.mark.parametrize("denoising", [False, True])
@pytest.mark.parametrize("form", ["text", "continuous"])
def test_a_step_with_another_head_or_vectors(tiny_mlm: Path, form: str, denoising: bool) -> None:
    """As released: vectors replace embeddings in the template, whose tokens the sentences don't have."""
    trained = form == "continuous"
    template = "this means {sentence} on of {mask} ." if trained else "auto"
    sentences = ["the man", "a doctor", "children singing a song"]
    made, batch, tokenizer = objective_of(
        "promptbert", tiny_mlm, sentences, prompt_form=form, prompt_head="mlm", template=template,
        denoising=denoising, prompt_init="random",
    )  # fmt: skip
    texts = [template] * 2 if trained else select_view_templates(options(), "[MASK]")
    model, first = made.encoder, len(tokenizer)
    table = model.embeddings.word_embeddings.weight
    assert len(table) == first + (5 if trained else 0)
    vectors = table[first:].detach().clone().requires_grad_()
    head = {f"cls.predictions.transform.{name}": p for name, p in made.head.named_parameters()}

    def state(row: list[int], template: list[int], places: list[int]) -> Tensor:
        embedded = list(table[row].detach() if trained else table[row])
        for vector, token in zip(vectors, template, strict=False):
            embedded[len(row) - 1 - row[::-1].index(token)] = vector  # the token's last place
        states = model(inputs_embeds=torch.stack(embedded)[None], position_ids=torch.tensor([places]))
        return transform(head, states.last_hidden_state[0, row.index(tokenizer.mask_token_id)])

    views: list[list[Tensor]] = []
    for text in texts:
        prompt = Prompt(tokenizer, text)
        front, back = [tokenizer.cls_token_id, *prompt.before], [*prompt.after, tokenizer.sep_token_id]
        words = [token for token in (*prompt.before, *prompt.after) if token != tokenizer.mask_token_id]
        views.append([])
        for sentence in sentences:
            inner = tokenizer(sentence, add_special_tokens=False)["input_ids"]
            assert not trained or not set(inner) & set(words)
            row = [*front, *inner, *back]
            z = state(row, words, list(range(len(row))))
            if denoising:
                shift = len(front) + len(inner)
                places = [*range(len(front)), *range(shift, shift + len(back))]
                z = z - state([*front, *back], words, places)
            views[-1].append(z)
    expected, loss = nce_by_loops(views[0], views[1]), made(batch)
    if form == "text":
        same_step(made, loss, expected, rel=1e-8, least=30)
        return
    assert float(loss.detach()) == pytest.approx(float(expected.detach()), rel=1e-8)
    got, wanted = gradients_of(made, loss), gradients_of(made, expected)
    table_gradient = got.pop("encoder.embeddings.word_embeddings.weight")
    assert got.keys() == wanted.keys() == {f"head.{name}" for name, _ in made.head.named_parameters()}
    for name, gradient in wanted.items():
        torch.testing.assert_close(got[name], gradient, rtol=1e-6, atol=1e-9)
    (gradient,) = torch.autograd.grad(expected, [vectors], retain_graph=True)
    torch.testing.assert_close(table_gradient[first:], gradient, rtol=1e-6, atol=1e-9)
    assert bool(gradient.any(1).all())
    assert not bool(table_gradient[:first].any())


def test_vectors_start_as_the_templates_tokens(tiny_bert: Path, byte_roberta: Path) -> None:
    """Then the first step says what the text would; [PROMPTk] counts each place, equal tokens too."""
    made, batch, tokenizer = objective_of("promptbert", tiny_bert, prompt_form="continuous")
    plain, _, _ = objective_of("promptbert", tiny_bert, template=COLON, template2=COLON)
    assert [prompt.text for prompt in made.prompts] == [VECTORS] * 2
    assert float(made(batch).detach()) == pytest.approx(float(plain(batch).detach()), rel=1e-9)
    assert made.prompts[0].rows(["a man"], 30)[0][5:7] == tokenizer("a man")["input_ids"][1:-1]
    named = name_vector_tokens(tokenizer, "of {sentence.}{mask}", "of {sentence}{mask}")
    assert named == "[PROMPT1] {sentence.}{mask}"
    with pytest.raises(InputError, match=r"promptbert\.test_template"):
        name_vector_tokens(tokenizer, "this {sentence}{mask}", "of {sentence}{mask}")
    # bytes: the blank before the sentence stays with its first word, and none comes between the vectors
    text, make = (
        "This sentence : ' {sentence} ' means{mask}.",
        partial(objective_of, "promptbert", byte_roberta),
    )
    made, batch, _ = make(max_length=12, prompt_form="continuous", template=text)
    plain, _, _ = make(max_length=12, template=text, template2=text)
    assert float(made(batch).detach()) == pytest.approx(float(plain(batch).detach()), rel=1e-9)
    assert made.prompts[0].length == plain.prompts[0].length


def test_training_changes_the_vectors_alone_and_exports(tmp_path: Path, tiny_mlm: Path) -> None:
    changes: dict[str, OptionValue] = {"prompt_form": "continuous", "prompt_head": "mlm", "denoising": False}
    found = train_alone("promptbert", tiny_mlm, tmp_path, max_length=16, **changes)
    model, tokenizer = load_backbone(tiny_mlm)
    before, after, name = model.state_dict(), found.kept(), "embeddings.word_embeddings.weight"
    size, prompt = len(before[name]), Prompt(tokenizer, COLON)
    assert torch.equal(after.pop(name)[:size], before[name])
    assert all(torch.equal(value, before[key]) for key, value in after.items())
    tokens = [token for token in (*prompt.before, *prompt.after) if token != tokenizer.mask_token_id]
    assert bool((found.kept()[name][size:] != before[name][tokens]).any(1).all())
    encoder: Any = found.encoder()
    assert encoder.prompt.text.count("[PROMPT") == len(tokens)
    assert "{sentence.}" in encoder.prompt.text
    export_encoder(encoder, tmp_path / "out", "# A card\n")
    loaded = bench.load(str(tmp_path / "out")).encode(SENTENCES)
    np.testing.assert_allclose(loaded, encoder.encode(SENTENCES), rtol=0, atol=1e-6)
    assert found.score() == pytest.approx(found.facts["selected_dev"], abs=1e-6)  # toy sentences have a stop


@pytest.mark.parametrize("vectors", ["denoised", "plain"])
def test_the_dev_set_is_scored_on_the_asked_vectors(tmp_path: Path, tiny_bert: Path, vectors: str) -> None:
    """The test is h itself; toy sentences end with a full stop, so both templates say the same."""
    found = train_alone("promptbert", tiny_bert, tmp_path, max_length=16, dev_vectors=vectors, lr=0.0)
    plain = TransformerEncoder(tiny_bert, "mask", template=OF)
    dev, denoised = found.facts["selected_dev"], vectors == "denoised"
    expected = DenoisedEncoder(tiny_bert, OF) if denoised else plain
    assert dev == pytest.approx(toy_score(expected), abs=1e-6)
    assert (found.score() == pytest.approx(dev, abs=1e-6)) != denoised
    whole = train_alone("promptbert", tiny_bert, tmp_path, max_length=16, denoising=False)
    assert whole.score() == pytest.approx(whole.facts["selected_dev"], abs=1e-6)
    assert whole.score(pooling="cls") != pytest.approx(whole.score())
    (stage,) = stages_of("promptbert", options())  # the test's template is no setting of the training
    assert stages_of("promptbert", options(pooling="cls", test_template=OF)) == (stage,)
    assert stages_of("promptbert", options(denoising=False)) != (stage,)


@pytest.mark.parametrize(
    ("name", "changes", "expected"),
    [
        ("tiny_bert", {}, 'This sentence of "{sentence.}" means{mask}.'),
        ("byte_roberta", {}, "This sentence : ' {sentence.} ' means{mask}."),
        ("tiny_bert", {"template": "{sentence} means {mask}"}, "{sentence} means {mask}"),
        ("tiny_bert", {"template": "{sentence} means {mask}", "test_template": OF}, OF),
        ("tiny_bert", {"pooling": "cls"}, None),
    ],
)
def test_build_and_export(
    tmp_path: Path, name: str, changes: dict[str, OptionValue], expected: str | None, request: Any
) -> None:
    """A stage's folder stands in for training; the exported folder gives the same vectors, stop included."""
    model, tokenizer = load_backbone(request.getfixturevalue(name))
    vectors, sentences = [], ["a man", "a man.", "", *SENTENCES]
    for checkpoint in ("selected", "last"):
        with torch.no_grad():
            model.embeddings.word_embeddings.weight.mul_(1.1)
        for part in (model, tokenizer):
            part.save_pretrained(tmp_path / "stage" / checkpoint)
        stages = {"promptbert": tmp_path / "stage"}
        context = BuildContext(options(**changes), 1, None, "cpu", stages, checkpoint)
        encoder: Any = discover().get("promptbert").build(context)
        assert (encoder.prompt.text if encoder.prompt else None) == expected
        vectors.append(encoder.encode(sentences))
        out = tmp_path / checkpoint
        export_encoder(encoder, out, "# A card\n")
        np.testing.assert_allclose(bench.load(str(out)).encode(sentences), vectors[-1], rtol=0, atol=1e-6)
        settings = json.loads((out / "bench.json").read_text())
        assert (settings["pooling"], settings["template"]) == (encoder.pooling, expected)
        if expected is not None:
            assert "no such pooling" in (out / "README.md").read_text()  # of sentence-transformers
            assert np.allclose(vectors[-1][0], vectors[-1][1], atol=1e-6) == ("{sentence.}" in expected)
    assert not np.allclose(vectors[0], vectors[1])


def test_hf_takes_a_prompt_too(cli: Cli, tmp_path: Path, tiny_bert: Path) -> None:
    own = f"c=hf:{tiny_bert}[pooling=mask,template={{mask}} of {{sentence.}}]"
    methods = f"a=hf:{tiny_bert}[pooling=mask],b=hf:{tiny_bert}:mask,{own}"
    code, _, err = cli("run", "--methods", methods, "--suite", "toy")
    assert code == 0, err
    scores = {record.method: record.score("TOY") for record in records(tmp_path).values()}
    assert scores["a"] == scores["b"] != scores["c"]
    export_encoder(TransformerEncoder(tiny_bert, "mask", template=COLON), tmp_path / "out", "# A card\n")
    loaded: Any = load_encoder(tmp_path / "out")
    assert loaded.prompt.text == COLON
