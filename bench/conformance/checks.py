"""The checks that every method has to pass: what is promised, and what to do where it is not kept."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from bench.conformance import card as on_card
from bench.conformance import encoder as on_encoder
from bench.conformance.subject import Subject


@dataclass(frozen=True)
class Check:
    """One promise that a method keeps.

    Args:
        name: For tables and ``only``.
        promise: What is expected.
        look: From the method under test and a seed to what was seen instead, None where the promise is kept.
        advice: What to do where it is not kept.
        of: The methods that it says something of: "all", those that "train", those that are "seeded", those
            with "vectors".
    """

    name: str
    promise: str
    look: Callable[[Subject, int], str | None]
    advice: str
    of: str = "all"


_CARD = (
    Check(
        "card",
        f"a complete card: kind {', '.join(on_card.KINDS)}, a one-line summary, a version from 1, equations",
        on_card.complete_card,
        "fill in the method's MethodCard",
    ),
    Check(
        "path",
        "a name of letters, digits, _ . + - that begins with a letter or digit, at most 80",
        on_card.safe_path,
        "it names a folder of records: choose another",
    ),
    Check(
        "options",
        "options with a name of their own, a help line and a default that is one of their values",
        on_card.sound_options,
        "correct the Option on the card",
    ),
    Check(
        "refused options",
        "an unknown option, and a text for a number, to be refused",
        on_card.refused_options,
        "leave that to MethodCard.option and Option.parse",
    ),
)
PLAN = Check(
    "keys",
    "equal keys for equal settings",
    on_card.equal_keys,
    "take no time, path or random value into a stage's config",
)
_STAGES = (
    Check(
        "stages",
        "stages with roles of their own, after their inputs, plain values as config, the same if asked again",
        on_card.sound_stages,
        "make stages() a function of its options alone",
        "train",
    ),
    Check(
        "workers",
        "training functions that a worker process finds by their name",
        on_card.portable_stages,
        "train with a function at the top of the module, not a lambda or an inner one",
        "train",
    ),
)
BUILD = Check(
    "build",
    "build(context) to return an encoder (dim, facts, encode(sentences, batch_tokens, progress)) or a "
    "scorer of pairs (facts, score_pairs(first, second))",
    on_encoder.interface,
    "see bench.encoder",
)
_ENCODER = (
    Check(
        "facts",
        "facts of texts and numbers, without a path",
        on_encoder.plain_facts,
        "name models by what they are, not where they lie",
    ),
    Check(
        "training facts",
        "the facts of training that a record holds: steps, sentences_seen, dev_curve, selected_step, "
        "selected_dev, cpu_seconds",
        on_card.complete_facts,
        "return them from the stage's train",
        "train",
    ),
    Check(
        "shape",
        "a row for every sentence",
        on_encoder.shape,
        "return (len(sentences), dim), (pairs,) of a scorer",
    ),
    Check("dtype", "float32", on_encoder.dtype, "end with .astype(np.float32)"),
    Check("finite", "finite values", on_encoder.finite, "look for a division by zero, or a norm of zero"),
    Check(
        "order",
        "row i for sentence i, whatever the order",
        on_encoder.order,
        "put the rows back where they were before they were sorted or grouped",
    ),
    Check(
        "alone",
        "a vector that its own sentence determines",
        on_encoder.alone,
        "take nothing from the batch: no mean over it, evaluation mode; else be a scorer of pairs",
        "vectors",
    ),
    Check(
        "batch size",
        "the same vectors whatever the batches are",
        on_encoder.batch_size,
        "mask the padding, encode in evaluation mode",
        "vectors",
    ),
    Check(
        "duplicates",
        "equal rows for equal sentences",
        on_encoder.duplicates,
        "draw nothing while encoding; switch dropout off",
    ),
    Check(
        "history",
        "a result that doesn't depend on what was encoded before",
        on_encoder.history,
        "keep no running state from call to call, draw nothing while encoding",
    ),
    Check(
        "same seed",
        "the same seed to give the same output, whatever the state of the global random generators",
        on_encoder.same_seed,
        "draw from generators of your own, seeded with context.seed; a deterministic method draws nothing",
    ),
    Check(
        "other seed",
        "another seed to give another output",
        on_encoder.other_seed,
        "use context.seed, or declare deterministic=True on the card",
        "seeded",
    ),
    Check(
        "empty list",
        "no sentences to give no rows",
        on_encoder.empty_list,
        "return np.zeros((0, dim), np.float32)",
    ),
    Check("empty string", "finite values for ''", on_encoder.empty_string, "an empty string is a sentence"),
    Check("long text", "finite values for very long sentences", on_encoder.long_text, "cut what is too long"),
    Check(
        "scripts",
        "finite values for any script, emoji and white space",
        on_encoder.scripts,
        "a sentence may have no known word: its vector may be zeros",
    ),
    Check(
        "input",
        "sentences that stay as they are, in any sequence",
        on_encoder.untouched_input,
        "work on a copy: list(sentences)",
    ),
    Check(
        "output",
        "an array of its own from every call",
        on_encoder.own_output,
        "make the array in encode, keep no buffer or cache of it",
    ),
    Check(
        "random state",
        "the global generators of random, numpy and torch left as they were",
        on_encoder.global_random_state,
        "use np.random.default_rng, torch.Generator, and bench.train.streams.own_random_state around dropout",
    ),
    Check("record", "bench run to finish a cell", on_encoder.record, "see the reason"),
)
CHECKS = (*_CARD, PLAN, *_STAGES, BUILD, *_ENCODER)
"""All checks, in the order in which they run."""
