"""Conformance of what a method builds: types, order, batches, repetition, odd sentences, side effects."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import replace
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
    built = subject.build(seed)
    seen = np.shape(subject.outputs(built, list(SENTENCES)))
    expected = (len(SENTENCES), built.dim) if isinstance(built, Encoder) else (len(SENTENCES),)
    return None if seen == expected else f"{seen} for {len(SENTENCES)} sentences, not {expected}"


def dtype(subject: Subject, seed: int) -> str | None:
    """Another type than float32."""
    output = subject.outputs(subject.build(seed), list(SENTENCES))
    kind = output.dtype if isinstance(output, np.ndarray) else type(output).__name__
    return None if kind == np.float32 else str(kind)


def finite(subject: Subject, seed: int) -> str | None:
    """Values that are no numbers."""
    return _not_finite(subject, seed, SENTENCES, ())


def order(subject: Subject, seed: int) -> str | None:
    """Rows that don't follow their sentences."""
    built = subject.build(seed)
    permuted = np.random.default_rng(0).permutation(len(SENTENCES))
    rows = as_array(subject.outputs(built, list(SENTENCES)))[permuted]
    return _differs(rows, subject.outputs(built, [SENTENCES[i] for i in permuted]), "with the order")


def alone(subject: Subject, seed: int) -> str | None:
    """A vector that depends on the sentences around it."""
    built = subject.build(seed)
    rows = as_array(subject.outputs(built, list(SENTENCES)))
    single = [as_array(subject.outputs(built, [sentence]))[0] for sentence in SENTENCES[:5]]
    return _differs(rows[:5], single, "where a sentence is encoded alone")


def batch_size(subject: Subject, seed: int) -> str | None:
    """A vector that depends on the size of the batches."""
    built = subject.build(seed)
    rows = as_array(subject.outputs(built, list(SENTENCES)))
    for tokens in (16, 100_000):
        if seen := _differs(
            rows, subject.outputs(built, list(SENTENCES), tokens), f"with batch_tokens={tokens}"
        ):
            return seen
    return None


def duplicates(subject: Subject, seed: int) -> str | None:
    """Equal sentences with different vectors."""
    twice = [*SENTENCES[:4], *OTHERS, *SENTENCES[:4]]
    rows = as_array(subject.outputs(subject.build(seed), twice))
    return _differs(rows[:4], rows[-4:], "from a sentence to the same again")


def history(subject: Subject, seed: int) -> str | None:
    """A result that depends on what was encoded before."""
    built = subject.build(seed)
    first = as_array(subject.outputs(built, list(SENTENCES)))
    subject.outputs(built, list(OTHERS))
    again = subject.outputs(built, list(SENTENCES))
    return None if np.array_equal(first, again, equal_nan=True) else "another result after other sentences"


def same_seed(subject: Subject, seed: int) -> str | None:
    """Another result of a second training from the same seed."""
    first, again = (as_array(subject.outputs(subject.build(seed, c), list(SENTENCES))) for c in ("a", "b"))
    if np.array_equal(first, again, equal_nan=True):
        return None
    how = "second training from the same seed" if subject.seeded else "second build"
    share = largest_difference(first, again)
    return f"another result of a {how} (by {share:.1g} of the largest value)"


def other_seed(subject: Subject, seed: int) -> str | None:
    """The same result of two seeds."""
    other = next(number for number in SEEDS if number != seed)
    first, second = (as_array(subject.outputs(subject.build(n), list(SENTENCES))) for n in (seed, other))
    equal = np.array_equal(first, second, equal_nan=True)
    return f"the same result from seeds {seed} and {other}" if equal else None


def empty_list(subject: Subject, seed: int) -> str | None:
    """No sentences, and not no rows."""
    built = subject.build(seed)
    output = subject.outputs(built, [])
    expected = (0, built.dim) if isinstance(built, Encoder) else (0,)
    kind, usual = (getattr(x, "dtype", None) for x in (output, subject.outputs(built, list(OTHERS))))
    if (np.shape(output), kind) == (expected, usual):
        return None
    return f"{kind} {np.shape(output)}, not {usual} {expected}"


def empty_string(subject: Subject, seed: int) -> str | None:
    """The empty string."""
    return _not_finite(subject, seed, ("",))


def long_text(subject: Subject, seed: int) -> str | None:
    """Far more words than a model takes, and one endless word."""
    return _not_finite(subject, seed, LONG)


def scripts(subject: Subject, seed: int) -> str | None:
    """Other scripts, emoji, control characters."""
    return _not_finite(subject, seed, SCRIPTS)


def untouched_input(subject: Subject, seed: int) -> str | None:
    """A changed list, or one that has to be a list."""
    built, given = subject.build(seed), list(SENTENCES)
    rows = as_array(subject.outputs(built, given))
    if given != list(SENTENCES):
        return "the list has other sentences afterwards"
    return _differs(rows, subject.outputs(built, SENTENCES), "with a tuple in place of a list")


def own_output(subject: Subject, seed: int) -> str | None:
    """An array that a later call writes to, or that later results come from."""
    built = subject.build(seed)
    rows = subject.outputs(built, list(SENTENCES))
    kept = as_array(rows)
    subject.outputs(built, list(SENTENCES)[::-1])
    if not np.array_equal(kept, rows, equal_nan=True):
        return "the next call writes into the array of the one before"
    if isinstance(rows, np.ndarray) and rows.flags.writeable:
        rows[:] = 0
    again = subject.outputs(built, list(SENTENCES))
    equal = np.array_equal(kept, again, equal_nan=True)
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


def _not_finite(
    subject: Subject, seed: int, sentences: Sequence[str], more: Sequence[str] = OTHERS
) -> str | None:
    """Say which of the sentences has no finite values; ``more`` stand beside them."""
    output = subject.outputs(subject.build(seed), [*sentences, *more])
    if len(output) != len(sentences) + len(more):
        return f"{len(output)} rows for {len(sentences) + len(more)} sentences"
    rows = as_array(output)[: len(sentences)]
    bad = ~np.isfinite(rows).reshape(len(rows), -1).all(axis=1)
    return f"no finite values for {_shown(sentences[int(np.argmax(bad))])}" if bad.any() else None


def _differs(expected: object, seen: object, when: str) -> str | None:
    share = largest_difference(expected, seen)
    return f"the result changes {when} (by {share:.1g} of the largest value)" if share > CLOSE else None


def _shown(sentence: str) -> str:
    return f"{sentence[:30]!r}{'...' if len(sentence) > 30 else ''}"
