"""Minimal pairs: a sentence, a paraphrase by a synonym, and a distractor with another meaning."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from bench.data.contrast_rules import (
    RULES,
    Sentence,
    change_number,
    insert_negation,
    is_plain,
    replace_antonym,
    replace_synonym,
    swap_places,
    swap_roles,
)
from bench.data.text_lines import number_sentences
from bench.errors import DataError, InputError

PHENOMENA = ("negation", "swap", "number", "antonym", "order")
"""Tasks of every contrast suite, in the tables' order."""
NOTE = "Chance is 50, a tie counts half."
LARGEST = 64 * 2**20
Triple = tuple[str, str, str]
"""A sentence, its paraphrase, its distractor."""

_RULES = {"negation": insert_negation, "swap": swap_roles, "number": change_number, "order": swap_places}


@dataclass(frozen=True)
class ContrastTask:
    """Minimal pairs of one phenomenon; ``text`` is their origin: kind, number or seed, and sha256.

    ``sources`` are the numbers of the clusters that the items' sentences were sampled in, () for sentences
    sampled one by one. Answers on items from one cluster are correlated, within and between phenomena.
    """

    id: str  # the phenomenon
    triples: tuple[Triple, ...]
    text: tuple[str, int, str]
    reference: bool = True  # the text is everybody's, or the user's own
    sources: tuple[int, ...] = field(default=(), compare=False)

    @property
    def items(self) -> int:
        """Number of triples."""
        return len(self.triples)

    @cached_property
    def sha256(self) -> str:
        """Fingerprint of the version of the rules, of the text and of every item."""
        facts = [RULES, self.id, self.text, self.triples]
        return hashlib.sha256(json.dumps(facts).encode()).hexdigest()


def make_triple(phenomenon: str, text: str) -> Triple | None:
    """Return the item that a sentence gives of a phenomenon, None in doubt.

    >>> make_triple("number", "Two dogs chase a ball.")
    ('Two dogs chase a ball.', 'Two canines chase a ball.', 'Four dogs chase a ball.')
    """
    sentence = Sentence(text)
    if not is_plain(sentence):
        return None
    changed: str | None
    place: int | None = None
    if phenomenon == "antonym":
        changed, place = replace_antonym(sentence) or (None, None)
    else:
        changed = _RULES[phenomenon](sentence)
    if changed is None:
        return None
    same = replace_synonym(sentence, place)
    return (text, same, changed) if same is not None else None


def make_contrast_tasks(
    sentences: Sequence[str],
    where: str,
    *,
    reference: bool = True,
    sources: Mapping[str, int] | None = None,
) -> list[ContrastTask]:
    """Make the tasks from distinct sentences; raises DataError for a phenomenon that lacks an item.

    ``sources`` has the number of every sentence's cluster, if the text was sampled in clusters.
    """
    distinct = list(dict.fromkeys(sentences))
    text = ("rules", len(distinct), hashlib.sha256("\n".join(distinct).encode()).hexdigest())
    tasks = []
    for phenomenon in PHENOMENA:
        made = {sentence: make_triple(phenomenon, sentence) for sentence in distinct}
        triples = {sentence: triple for sentence, triple in made.items() if triple is not None}
        numbers = () if sources is None else tuple(sources[sentence] for sentence in triples)
        tasks.append(ContrastTask(phenomenon, tuple(triples.values()), text, reference, numbers))
    if lacking := [task.id for task in tasks if not task.items]:
        what = f"{len(distinct)} distinct sentences give no item of {', '.join(lacking)}"
        expected, hint = "a text to which every rule applies somewhere", "docs/contrast.md lists the rules"
        raise DataError(what, where=where, expected=expected, hint=hint)
    return tasks


def read_contrast_text(path: Path) -> list[str]:
    """Read a user's .txt, a sentence a line, skipping empty lines; raises InputError and DataError."""
    if path.suffix != ".txt" or not path.is_file():
        what = "no such file" if path.suffix == ".txt" else f"'{path.suffix}' is not a format"
        raise InputError(what, where=f"contrast:{path}", expected="a .txt, a sentence a line")
    try:
        size = path.stat().st_size
        if size > LARGEST:
            raise DataError(f"the text has {size:,} bytes", where=str(path), expected="at most 64 MiB")
        raw = path.read_bytes()
    except OSError as error:
        raise DataError(f"this text can't be read: {error.strerror}", where=str(path)) from error
    return [sentence for _, sentence in number_sentences(raw.split(b"\n"), str(path)) if sentence]


def contrast_sentences(task: ContrastTask) -> Iterator[str]:
    """Yield all sentences of a task."""
    for item in task.triples:
        yield from item
