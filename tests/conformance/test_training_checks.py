"""Planted errors of a training, each found by name, and trainings that are right."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.config.plugins import load_plugin, read_plugin
from bench.conformance.check_registry import CHECKS, NoCaseError
from bench.conformance.check_run import FAILED, check_method
from bench.conformance.subject import Subject
from tests.support.messages import missing_facts

STARTER = (Path(__file__).parents[2] / "bench" / "cli" / "starter" / "method.py.txt").read_text()
VIEWS = "return training.token_batch([*batch, *batch], self.pad_id, self.encoder)"
STATES = "states = training.batch_states(self.encoder, prepared)"
LOSS = "return align + (spread[0] + spread[1]) / 2"
INIT = "self.encoder, self.pad_id, self.t = model, pad_id, t"
HEAD = f"{INIT}\n        self.head = torch.nn.Linear(model.config.hidden_size, model.config.hidden_size)"
ZERO_HEAD = f"{HEAD}\n        torch.nn.init.zeros_(self.head.weight)"
OPTIONS = "training.usual_options(lr=1e-4)"
ON_HEAD = "states = self.head(states)"
CALL = (
    "self.encoder(input_ids=c.ids, attention_mask=c.mask, output_hidden_states=True).hidden_states[2][:, 0]"
)
SECOND_LAYER = f"states = torch.cat([{CALL} for c in prepared.chunks])[prepared.place]"
TRAIN = """        return training.train_sentence_encoder(
            context, lambda model, pad_id: AlignUniformObjective(model, pad_id, t)
        )
"""
TRAIN_HEAD = """        made = []

        def make(model, pad_id):
            made.append(AlignUniformObjective(model, pad_id, t))
            return made[0]

        facts = training.train_sentence_encoder(context, make)
        torch.save(made[0].head.state_dict(), context.out / "head.pt")
        return facts
"""
END = "        return facts\n"
BUILD_HEAD = """        return facts

    def build(self, context):
        encoder = super().build(context)
        head = torch.nn.Linear(encoder.dim, encoder.dim)
        head.load_state_dict(torch.load(context.stages["align_uniform"] / "head.pt", weights_only=True))
        return Headed(encoder, head)


class Headed:
    def __init__(self, encoder, head):
        self.inner, self.head, self.dim, self.facts = encoder, head, encoder.dim, encoder.facts

    def encode(self, sentences, batch_tokens=None, progress=None):
        with torch.no_grad():
            return self.head(torch.from_numpy(self.inner.encode(sentences, batch_tokens, progress))).numpy()
"""
Changes = list[tuple[str, str]]


def change(*pairs: tuple[str, str]) -> str:
    source = STARTER
    for old, new in pairs:
        assert old in source
        source = source.replace(old, new)
    return source


def look(check: str, source: str, folder: Path) -> str | None:
    """What one check says about a method's file."""
    file = folder / "method.py"
    file.write_text(source)
    load_plugin(read_plugin(str(file), folder / "results"))
    (found,) = (each for each in CHECKS if each.name == check)
    return found.look(Subject("align_uniform", folder / "scratch"))


@pytest.fixture(autouse=True)
def scratch(tmp_path: Path) -> None:
    (tmp_path / "scratch").mkdir()


def indent(*lines: str) -> str:
    return "\n        ".join(lines)


GRADIENTS: dict[str, tuple[Changes, tuple[str, ...]]] = {
    "right": ([], ()),
    "detached": (
        [(INIT, HEAD), (STATES, indent(f"{STATES}.detach()", ON_HEAD))],
        ("encoder is detached", "'align_uniform'", "embeddings.word_embeddings.weight", " more"),
    ),
    "no_grad": (
        [
            (INIT, HEAD),
            (STATES, indent("with torch.no_grad():", f"    {STATES}", ON_HEAD)),
        ],
        ("encoder is detached", "embeddings.word_embeddings.weight"),
    ),
    "forgotten layers": (
        [(STATES, SECOND_LAYER)],
        ("no gradient reaches encoder.encoder.layer.2.", " and 2"),
    ),
    "forgotten head": (
        [(INIT, HEAD), (TRAIN, TRAIN_HEAD), (END, BUILD_HEAD)],
        ("no gradient reaches head.weight, head.bias",),
    ),
    "trained head": (
        [(INIT, HEAD), (TRAIN, TRAIN_HEAD), (END, BUILD_HEAD), (STATES, indent(STATES, ON_HEAD))],
        (),
    ),
    "zero head": ([(INIT, ZERO_HEAD), (STATES, indent(STATES, "states = states + self.head(states)"))], ()),
    "only through a zero head": (
        [(INIT, ZERO_HEAD), (STATES, indent(STATES, "states = states.detach() + self.head(states)"))],
        (),  # the encoder has a gradient from the second step on
    ),
    "frozen on purpose": ([(INIT, indent(INIT, "model.embeddings.requires_grad_(False)"))], ()),
    "all frozen": (
        [(INIT, indent(HEAD, "model.requires_grad_(False)")), (STATES, indent(STATES, ON_HEAD))],
        ("changes none of the weights that are kept",),
    ),
    "outside the objective": (
        [
            (INIT, HEAD.replace("= model,", "= [model],")),
            (STATES, indent(STATES, ON_HEAD)),
            ("self.encoder)", "self.encoder[0])"),
            ("batch_states(self.encoder,", "batch_states(self.encoder[0],"),
        ],
        ("doesn't train tower 0.embeddings.word_embeddings.weight", "no attribute of its objective"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", [*GRADIENTS])
def test_a_weight_without_gradient_is_named(case: str, tmp_path: Path) -> None:
    changes, facts = GRADIENTS[case]
    seen = look("gradients", change(*changes), tmp_path)
    assert (seen is None) == (not facts), seen
    assert seen is None or not missing_facts(seen, *facts)


def test_a_loss_without_any_gradient_is_explained(tmp_path: Path) -> None:
    file = tmp_path / "method.py"
    file.write_text(change((STATES, f"{STATES}.detach()")))
    load_plugin(read_plugin(str(file), tmp_path / "results"))
    found = {finding.check: finding for finding in check_method("align_uniform", tmp_path / "scratch")}
    assert found["build"].verdict == FAILED
    assert not missing_facts(found["build"].reason, "the encoder is detached", "torch.no_grad()")


INFO_NCE = indent("from bench import losses", "loss = losses.info_nce(first, second, 0.05)")
LOSSES: dict[str, tuple[Changes, tuple[str, ...]]] = {
    "right": ([], ()),
    "wrong sign": ([(LOSS, "return -(align + (spread[0] + spread[1]) / 2)")], ("'align_uniform' moves ",)),
    "wrong sign of InfoNCE": ([(LOSS, indent(INFO_NCE, "return -loss"))], ("'align_uniform' moves ",)),
    "wrong sign of a term": (
        [(LOSS, "return align - (spread[0] + spread[1]) / 2")],
        ("all sentences together",),
    ),
    "right InfoNCE": ([(LOSS, indent(INFO_NCE, "return loss"))], ()),
    "reversed gradient": (
        [(STATES, indent(STATES, "states.requires_grad and states.register_hook(lambda g: -g)"))],
        ("the loss rises: ", "'align_uniform'"),
    ),
    "reversed gradient at a low rate": (
        [
            (STATES, indent(STATES, "states.requires_grad and states.register_hook(lambda g: -g)")),
            (OPTIONS, "training.usual_options(lr=1e-5)"),
        ],
        ("the loss rises: ",),
    ),
    "rate of zero": ([(OPTIONS, "training.usual_options(lr=0.0)")], ("the loss stays: ",)),
}  # fmt: skip


@pytest.mark.parametrize("case", [*LOSSES])
def test_a_loss_that_trains_the_wrong_way_is_found(case: str, tmp_path: Path) -> None:
    changes, facts = LOSSES[case]
    seen = look("loss", change(*changes), tmp_path)
    assert (seen is None) == (not facts), seen
    assert seen is None or not missing_facts(seen, *facts)


DROPOUT: dict[str, tuple[Changes, tuple[str, ...]]] = {
    "right": ([], ()),
    "evaluation mode": (
        [(STATES, indent("self.encoder.eval()", STATES))],
        ("equal views", "'align_uniform'", "embeddings.dropout", "evaluation mode"),
    ),
    "rate of zero": (
        [(OPTIONS, "training.usual_options(lr=1e-4, dropout=0.0)")],
        ("embeddings.dropout", "the rate 0"),
    ),
    "no modules": (
        [
            ("import Any\n", "import Any\nfrom bench.nn.dropout import set_dropout\n"),
            (INIT, indent(INIT, "set_dropout(model, 0.0)")),
        ],
        ("embeddings.dropout", "the rate 0"),
    ),
}


@pytest.mark.parametrize("case", [*DROPOUT])
def test_views_that_are_equal_are_found(case: str, tmp_path: Path) -> None:
    changes, facts = DROPOUT[case]
    seen = look("dropout", change(*changes), tmp_path)
    assert (seen is None) == (not facts), seen
    assert seen is None or not missing_facts(seen, *facts)


def test_views_of_other_tokens_need_no_dropout(tmp_path: Path) -> None:
    source = change(
        (VIEWS, VIEWS.replace("*batch]", "*[row[:-2] + row[-1:] for row in batch]]")),
        (OPTIONS, "training.usual_options(lr=1e-4, dropout=0.0)"),
    )
    with pytest.raises(NoCaseError, match="same tokens twice"):
        look("dropout", source, tmp_path)
