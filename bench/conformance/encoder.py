"""Conformance of what a method builds: types, order, batches, repetition, odd sentences, side effects."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from bench.conformance.subject import (
    SEEDS,
    Subject,
    as_array,
    changed,
    largest_difference,
    random_state,
    stir_random_state,
)
from bench.data.toy import toy_task
from bench.encoder import Encoder, PairScorer
from bench.eval.embed import distinct
from bench.records.provenance import without_paths
from bench.records.record import to_json
from bench.run.cell import run_cell
from bench.run.task import CellTask

CLOSE = 1e-4
"""Largest difference that rounding in another batch may make, as a share of the largest value."""
SENTENCES = tuple(distinct(s for pair in toy_task().all_pairs() for s in pair))[::9]
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
LONG = (" ".join(SENTENCES * 40), "a" * 5_000)


def interface(subject: Subject, seed: int) -> str | None:
    """What is neither an encoder nor a scorer of pairs."""
    built = subject.build(seed)
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


def plain_facts(subject: Subject, seed: int) -> str | None:
    """Facts that no record can hold."""
    facts = subject.build(seed).facts
    for name, value in facts.items():
        if not isinstance(value, str | int | float):
            return f"{name} is a {type(value).__name__}"
        if isinstance(value, str) and without_paths(value) != value:
            return f"{name} has a path of this machine"
    return None


def shape(subject: Subject, seed: int) -> str | None:
    """Another shape than (sentences, dim), or (pairs,) of a scorer."""
    seen, expected = np.shape(subject.encode(SENTENCES, seed)), _shape(subject.build(seed), len(SENTENCES))
    return None if seen == expected else f"{seen} for {len(SENTENCES)} sentences, not {expected}"


def _shape(built: Encoder | PairScorer, rows: int) -> tuple[int, ...]:
    return (rows, built.dim) if isinstance(built, Encoder) else (rows,)


def dtype(subject: Subject, seed: int) -> str | None:
    """Another type than float32."""
    output = subject.encode(SENTENCES, seed)
    kind = output.dtype if isinstance(output, np.ndarray) else type(output).__name__
    return None if kind == np.float32 else str(kind)


def _finite(
    subject: Subject, seed: int, *, sentences: Sequence[str], more: Sequence[str] = OTHERS
) -> str | None:
    """Say which of the sentences has no finite values; ``more`` are encoded along with them."""
    output = subject.encode([*sentences, *more], seed)
    if len(output) != len(sentences) + len(more):
        return f"{len(output)} rows for {len(sentences) + len(more)} sentences"
    rows = as_array(output)[: len(sentences)]
    bad = ~np.isfinite(rows).reshape(len(rows), -1).all(axis=1)
    if not bad.any():
        return None
    first = sentences[int(np.argmax(bad))]
    return f"no finite values for {first[:30]!r}{'...' if len(first) > 30 else ''}"


finite = partial(_finite, sentences=SENTENCES, more=())
empty_string = partial(_finite, sentences=("",))
long_text = partial(_finite, sentences=LONG)
scripts = partial(_finite, sentences=SCRIPTS)


def order(subject: Subject, seed: int) -> str | None:
    """Rows that don't follow their sentences."""
    permuted = np.random.default_rng(0).permutation(len(SENTENCES))
    rows = as_array(subject.encode(SENTENCES, seed))[permuted]
    return _differs(rows, subject.encode([SENTENCES[i] for i in permuted], seed), "with the order")


def alone(subject: Subject, seed: int) -> str | None:
    """A vector that depends on the sentences around it."""
    rows = as_array(subject.encode(SENTENCES, seed))
    single = [as_array(subject.encode([sentence], seed))[0] for sentence in SENTENCES[:5]]
    return _differs(rows[:5], single, "where a sentence is encoded alone")


def batch_size(subject: Subject, seed: int) -> str | None:
    """A vector that depends on the size of the batches."""
    rows = as_array(subject.encode(SENTENCES, seed))
    for tokens in (16, 100_000):
        other = subject.encode(SENTENCES, seed, tokens)
        if seen := _differs(rows, other, f"with batch_tokens={tokens}"):
            return seen
    return None


def duplicates(subject: Subject, seed: int) -> str | None:
    """Equal sentences with different vectors."""
    rows = as_array(subject.encode([*SENTENCES[:4], *OTHERS, *SENTENCES[:4]], seed))
    return _differs(rows[:4], rows[-4:], "from a sentence to the same again")


def history(subject: Subject, seed: int) -> str | None:
    """A result that depends on what was encoded before."""
    first = as_array(subject.encode(SENTENCES, seed))
    subject.encode(OTHERS, seed)
    return None if _equal(first, subject.encode(SENTENCES, seed)) else "another result after other sentences"


def same_seed(subject: Subject, seed: int) -> str | None:
    """Another result of a second training from the same seed."""
    first, again = (as_array(subject.encode(SENTENCES, seed, copy=copy)) for copy in ("a", "b"))
    if _equal(first, again):
        return None
    how = "second training from the same seed" if subject.seeded else "second build"
    return f"another result of a {how} (by {largest_difference(first, again):.1g} of the largest value)"


def other_seed(subject: Subject, seed: int) -> str | None:
    """The same result of two seeds."""
    other = next(number for number in SEEDS if number != seed)
    equal = _equal(as_array(subject.encode(SENTENCES, seed)), subject.encode(SENTENCES, other))
    return f"the same result from seeds {seed} and {other}" if equal else None


def empty_list(subject: Subject, seed: int) -> str | None:
    """Rows for no sentences, or another type than usual."""
    none, usual = subject.encode((), seed), getattr(subject.encode(OTHERS, seed), "dtype", None)
    expected, kind = _shape(subject.build(seed), 0), getattr(none, "dtype", None)
    if (np.shape(none), kind) == (expected, usual):
        return None
    return f"{kind} {np.shape(none)}, not {usual} {expected}"


def untouched_input(subject: Subject, seed: int) -> str | None:
    """A changed list, or one that has to be a list."""
    built, given = subject.build(seed), list(SENTENCES)
    rows = as_array(subject.outputs(built, given))
    if given != list(SENTENCES):
        return "the list has other sentences afterwards"
    return _differs(rows, subject.outputs(built, SENTENCES), "with a tuple in place of a list")


def own_output(subject: Subject, seed: int) -> str | None:
    """An array that a later call writes to, or that later results come from."""
    rows = subject.encode(SENTENCES, seed)
    kept = as_array(rows)
    subject.encode(SENTENCES[::-1], seed)
    if not _equal(kept, rows):
        return "the next call writes into the array of the one before"
    if isinstance(rows, np.ndarray) and rows.flags.writeable:
        rows[:] = 0
    equal = _equal(kept, subject.encode(SENTENCES, seed))
    return None if equal else "writing to the array changes the next result"


def global_random_state(subject: Subject, seed: int) -> str | None:
    """Global random generators that building or encoding leaves in another state."""
    built = subject.build(seed)
    touched = {name: "building" for name in subject.touched.get((seed, "a"), ())}
    stir_random_state()
    before = random_state()
    subject.outputs(built, list(SENTENCES))
    touched |= {name: "encoding" for name in changed(before, random_state()) if name not in touched}
    return "; ".join(f"{what} changes the state of {name}" for name, what in touched.items()) or None


def record(subject: Subject, seed: int) -> str | None:
    """A cell that bench run couldn't finish, or whose record has a path of this machine."""
    plan = subject.planned
    job = next(job for job in plan.jobs if job.cell == subject.cell(seed))
    subject.build(seed)  # leaves the stages that the cell finds
    task = CellTask((job,), replace(plan.spec, force=True), plan.training, wait=True)
    plan.store.prepare()
    (outcome,) = run_cell(task, plan.suites)
    if outcome.record is None or outcome.record.status != "ok":
        return outcome.record.reason if outcome.record and outcome.record.reason else outcome.state
    if not plan.store.path(job.place).resolve().is_relative_to(plan.store.root.resolve()):
        return "a record outside the campaign's folder"
    text = to_json(outcome.record, timing=False)
    places = {
        f"{path}/" for path in (subject.folder.resolve(), Path.home(), Path.cwd()) if len(path.parts) > 1
    }
    return "a path of this machine in it" if any(place in text for place in places) else None


def _equal(first: object, second: object) -> bool:
    return bool(np.array_equal(as_array(first), as_array(second), equal_nan=True))


def _differs(expected: object, seen: object, when: str) -> str | None:
    share = largest_difference(expected, seen)
    return f"the result changes {when} (by {share:.1g} of the largest value)" if share > CLOSE else None
