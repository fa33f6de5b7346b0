"""Conformance of a built encoder: types, order, batches, repetition, unusual sentences, side effects."""

from __future__ import annotations

import inspect
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from bench.conformance.check_registry import register_check
from bench.conformance.subject import (
    SEEDS,
    Subject,
    compare_random_states,
    read_random_states,
    reseed_generators,
)
from bench.data.toy_suite import make_toy_task
from bench.encoder import Encoder, PairScorer
from bench.eval.embeddings import distinct_sentences
from bench.execution.cell_run import CellTask, run_cell
from bench.records.environment import strip_paths
from bench.records.record import record_to_json

CLOSE = 1e-4
"""Largest rounding difference between batches, relative to the largest value."""
SENTENCES = tuple(distinct_sentences(s for pair in make_toy_task().all_pairs() for s in pair))[::18]
OTHERS = ("Two dogs run.", "It was the best of times, it was the worst of times.", "3 + 4 = 7")
SCRIPTS = (
    "Ein Bär läuft über die Straße.",
    "Москва — столица России.",
    "今天天气很好,我们去公园。",
    "هذا كتاب جديد.",
    "यह एक नई किताब है।",
    "🙂🙃 👩‍👩‍👧 e\u0301 \u200b\ufeff",
    "tab\tand\nline break",
    "?!… -- ((",
)
LONG = (" ".join(SENTENCES * 80), "a" * 5_000)
_FACTS = {
    "steps": int,
    "sentences_seen": int,
    "dev_curve": list,
    "selected_step": int,
    "selected_dev": float | int | None,
    "cpu_seconds": float | int,
}


@register_check("build")
def check_interface(subject: Subject) -> str | None:
    """build(context) to return an encoder (dim, facts, encode) or a scorer of pairs (facts, score_pairs).

    Advice: see bench.encoder: encode(sentences, batch_tokens, progress), score_pairs(first, second).
    """
    built = subject.build()
    names = ("facts",) if hasattr(built, "score_pairs") else ("dim", "facts", "encode")
    missing = [name for name in names if not hasattr(built, name)]
    if missing:
        return f"a {type(built).__name__} without {' and '.join(missing)}"
    if isinstance(built, PairScorer):
        return None
    if not isinstance(built.dim, int) or built.dim < 1:
        return f"dim {built.dim!r}"
    try:
        inspect.signature(built.encode).bind([], None, None)
    except TypeError as error:
        return f"encode{inspect.signature(built.encode)}: {error}"
    return None


@register_check("facts")
def check_fact_types(subject: Subject) -> str | None:
    """Facts of texts and numbers, without a path.

    Advice: name models by what they are, not where they lie.
    """
    for name, value in subject.build().facts.items():
        if not isinstance(value, str | int | float):
            return f"{name} is a {type(value).__name__}"
        if isinstance(value, str) and strip_paths(value) != value:
            return f"{name} has a path of this machine"
    return None


@register_check("training facts", "train")
def check_training_facts(subject: Subject) -> str | None:
    """Facts of training: steps, sentences_seen, dev_curve, selected_step, selected_dev, cpu_seconds.

    Advice: return them from the stage's train.
    """
    for stage in subject.cell().all_stages:
        facts = subject.cache().facts(stage)
        for name, kinds in _FACTS.items():
            if name not in facts:
                return f"stage '{stage.spec.role}' leaves no {name}"
            if not isinstance(facts[name], kinds):
                return f"stage '{stage.spec.role}' leaves {name} {json.dumps(facts[name])}"
    return None


@register_check("shape")
def check_output_shape(subject: Subject) -> str | None:
    """A row for every sentence. Advice: return (len(sentences), dim), (pairs,) of a scorer."""
    seen, expected = np.shape(subject.output(list(SENTENCES))), _expect_shape(subject, len(SENTENCES))
    return None if seen == expected else f"{seen} for {len(SENTENCES)} sentences, not {expected}"


def _expect_shape(subject: Subject, rows: int) -> tuple[int, ...]:
    built = subject.build()
    return (rows, built.dim) if isinstance(built, Encoder) else (rows,)


@register_check("dtype")
def check_dtype(subject: Subject) -> str | None:
    """Float32. Advice: end with .astype(np.float32)."""
    output = subject.output(list(SENTENCES))
    kind = output.dtype if isinstance(output, np.ndarray) else type(output).__name__
    return None if kind == np.float32 else str(kind)


def _find_infinite(subject: Subject, sentences: Sequence[str], more: Sequence[str] = OTHERS) -> str | None:
    """Describe the first sentence without finite values; ``more`` are encoded too."""
    output = subject.encode([*sentences, *more])
    if len(output) != len(sentences) + len(more):
        return f"{len(output)} rows for {len(sentences) + len(more)} sentences"
    bad = ~np.isfinite(output[: len(sentences)]).reshape(len(sentences), -1).all(axis=1)
    if not bad.any():
        return None
    first = sentences[int(np.argmax(bad))]
    return f"no finite values for {first[:30]!r}{'...' if len(first) > 30 else ''}"


@register_check("finite")
def check_finite_values(subject: Subject) -> str | None:
    """Finite values. Advice: look for a division by zero, or a norm of zero."""
    return _find_infinite(subject, SENTENCES, more=())


@register_check("order")
def check_row_order(subject: Subject) -> str | None:
    """Row i for sentence i, whatever the order.

    Advice: put the rows back where they were before they were sorted or grouped.
    """
    permuted = np.random.default_rng(0).permutation(len(SENTENCES))
    rows = subject.encode(SENTENCES)[permuted]
    return _describe_difference(rows, subject.encode([SENTENCES[i] for i in permuted]), "with the order")


@register_check("alone", "vectors")
def check_single_sentence(subject: Subject) -> str | None:
    """A vector that its own sentence determines.

    Advice: take nothing from the batch: no mean over it, evaluation mode; else be a scorer of pairs.
    """
    single = [subject.encode([sentence])[0] for sentence in SENTENCES[:5]]
    return _describe_difference(subject.encode(SENTENCES)[:5], single, "where a sentence is encoded alone")


@register_check("batch size", "vectors")
def check_batch_size(subject: Subject) -> str | None:
    """The same vectors whatever the batches are. Advice: mask the padding, encode in evaluation mode."""
    rows = subject.encode(SENTENCES)
    for n in (16, 100_000):
        if seen := _describe_difference(rows, subject.encode(SENTENCES, n), f"with batch_tokens={n}"):
            return seen
    return None


@register_check("duplicates")
def check_duplicates(subject: Subject) -> str | None:
    """Equal rows for equal sentences. Advice: draw nothing while encoding; switch dropout off."""
    rows = subject.encode([*SENTENCES[:4], *OTHERS, *SENTENCES[:4]])
    return _describe_difference(rows[:4], rows[-4:], "from a sentence to the same again")


@register_check("history")
def check_call_history(subject: Subject) -> str | None:
    """A result that doesn't depend on what was encoded before.

    Advice: keep no running state from call to call, draw nothing while encoding.
    """
    first = subject.encode(SENTENCES)
    subject.encode(OTHERS)
    changed = _relative_difference(first, subject.encode(SENTENCES))
    return "another result after other sentences" if changed else None


@register_check("same seed")
def check_same_seed(subject: Subject) -> str | None:
    """The same seed to give the same output, whatever the state of the global random generators.

    Advice: draw from generators of your own, seeded with context.seed; a deterministic method draws nothing.
    """
    share = _relative_difference(subject.encode(SENTENCES), subject.encode(SENTENCES, copy="b"))
    how = "second training from the same seed" if subject.seeded else "second build"
    return f"another result of a {how} (by {share:.1g} of the largest value)" if share else None


@register_check("other seed", "seeded")
def check_other_seed(subject: Subject) -> str | None:
    """Another seed to give another output.

    Advice: use context.seed, or declare deterministic=True on the card.
    """
    share = _relative_difference(*(subject.encode(SENTENCES, seed=seed) for seed in SEEDS))
    return None if share else f"the same result from seeds {' and '.join(map(str, SEEDS))}"


@register_check("empty list")
def check_empty_list(subject: Subject) -> str | None:
    """No sentences to give no rows. Advice: return np.zeros((0, dim), np.float32)."""
    none, usual = subject.output([]), getattr(subject.output(list(OTHERS)), "dtype", None)
    expected, kind = _expect_shape(subject, 0), getattr(none, "dtype", None)
    same = (np.shape(none), kind) == (expected, usual)
    return None if same else f"{kind} {np.shape(none)}, not {usual} {expected}"


@register_check("empty string")
def check_empty_string(subject: Subject) -> str | None:
    """Finite values for ''. Advice: an empty string is a sentence."""
    return _find_infinite(subject, ("",))


@register_check("long text")
def check_long_text(subject: Subject) -> str | None:
    """Finite values for very long sentences. Advice: cut what is too long."""
    return _find_infinite(subject, LONG)


@register_check("scripts")
def check_scripts(subject: Subject) -> str | None:
    """Finite values for any script, emoji and white space.

    Advice: a sentence may have no known word: its vector may be zeros.
    """
    return _find_infinite(subject, SCRIPTS)


@register_check("input")
def check_input_mutation(subject: Subject) -> str | None:
    """Sentences that stay as they are, in any sequence. Advice: work on a copy: list(sentences)."""
    given = list(SENTENCES)
    rows = np.array(subject.output(given), dtype=np.float64)
    if given != list(SENTENCES):
        return "the list has other sentences afterwards"
    return _describe_difference(rows, subject.output(SENTENCES), "with a tuple in place of a list")


@register_check("output")
def check_output_buffer(subject: Subject) -> str | None:
    """An array of its own from every call.

    Advice: make the array in encode, keep no buffer or cache of it.
    """
    rows = subject.output(list(SENTENCES))
    kept = np.array(rows, dtype=np.float64)
    subject.encode(SENTENCES[::-1])
    if _relative_difference(kept, rows):
        return "the next call writes into the array of the one before"
    if isinstance(rows, np.ndarray) and rows.flags.writeable:
        rows[:] = 0
    changed = _relative_difference(kept, subject.encode(SENTENCES))
    return "writing to the array changes the next result" if changed else None


@register_check("random state")
def check_random_state(subject: Subject) -> str | None:
    """The global generators of random, numpy and torch left as they were.

    Advice: use np.random.default_rng, torch.Generator, and
    bench.training.randomness.own_random_state around dropout.
    """
    subject.build()
    touched = dict.fromkeys(subject.touched, "building")
    reseed_generators()
    before = read_random_states()
    subject.encode(SENTENCES)
    touched = dict.fromkeys(compare_random_states(before, read_random_states()), "encoding") | touched
    return "; ".join(f"{what} changes the state of {name}" for name, what in touched.items()) or None


@register_check("record")
def check_record(subject: Subject) -> str | None:
    """Bench run to finish a cell. Advice: see the reason."""
    plan = subject.planned
    job = next(job for job in plan.jobs if job.cell == subject.cell())
    subject.build()  # leaves the stages that the cell finds
    task = CellTask((job,), replace(plan.spec, force=True), plan.training, wait=True)
    plan.store.prepare()
    (outcome,) = run_cell(task, plan.suites)
    if outcome.record is None or outcome.record.status != "ok":
        return outcome.record.reason if outcome.record and outcome.record.reason else outcome.state
    if not plan.store.path(job.place).resolve().is_relative_to(plan.store.root.resolve()):
        return "a record outside the campaign's folder"
    text = record_to_json(outcome.record, timing=False)
    for path in (subject.folder.resolve(), Path.home(), Path.cwd()):
        if len(path.parts) > 1 and f"{path}/" in text:
            return "a path of this machine in it"
    return None


def _relative_difference(first: object, second: object) -> float:
    """Return the largest difference relative to the largest value; NaN equals NaN; inf for other shapes."""
    a, b = (np.asarray(output, dtype=np.float64) for output in (first, second))
    if a.shape != b.shape:
        return float("inf")
    with np.errstate(invalid="ignore"):  # inf - inf, which is equal
        difference = np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0.0, np.abs(a - b))
    scale = max(float(np.max(np.abs(a), where=np.isfinite(a), initial=0.0)), 1e-8)
    worst = float(np.max(difference, initial=0.0)) / scale
    return worst if worst == worst else float("inf")


def _describe_difference(expected: object, seen: object, when: str) -> str | None:
    share = _relative_difference(expected, seen)
    return f"the result changes {when} (by {share:.1g} of the largest value)" if share > CLOSE else None
