"""The negation of a sentence: SNCSE's soft negative, by a parse (as released) or by a list of words."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bench.errors import InputError

SPACY_FOLDER = "BENCH_SPACY"
"""Environment variable that names the folder of a spaCy model: records omit paths of one machine."""

_BE = ("am", "is", "was", "are", "were")
_MODALS = ("can", "could", "will", "would", "shall", "should", "may", "must", "might")
_AUXILIARIES = (*_BE, *_MODALS, "do", "does", "did", "has", "have", "had")
# case counts (Will and May are names), and so does the ending: "can't" and "did n't" are negated already
_QUOTES = "'\u2019"
_AUXILIARY = re.compile(rf"(?<![\w{_QUOTES}-])({'|'.join(_AUXILIARIES)})(?![\w{_QUOTES}-]| n?[{_QUOTES}]t\b)")
_NOT = re.compile(r"\bnot\b ?|(?<=\bcan)not\b")
_DO = {"VBP": "do", "VBZ": "does", "VBD": "did"}


class ParsedToken(NamedTuple):
    """A token by a dependency parser: text, dependency, fine part of speech, lemma."""

    text: str
    dep: str
    tag: str
    lemma: str


def negate_by_rule(sentence: str) -> str:
    """Negate a sentence by a closed list of words.

    The first "not" is deleted ("cannot" becomes "can"). Otherwise "not" follows the first auxiliary, modal or
    form of be. Otherwise "Not " precedes the sentence.
    """
    without = _NOT.sub("", sentence, count=1)
    if without != sentence:
        return without
    verb = _AUXILIARY.search(sentence)
    return f"{sentence[: verb.end()]} not{sentence[verb.end() :]}" if verb else f"Not {sentence}"


def negate_parsed(tokens: Sequence[ParsedToken]) -> str:
    """Negate a parsed sentence (SNCSE's released rules); the result's tokens are joined by blanks.

    The first "not" is deleted. Otherwise "not" follows the first auxiliary before the root, or a root that is
    a form of be or a modal. Another root in present or past becomes do, does or did not with its lemma.
    Otherwise "Not" precedes the sentence.
    """
    words = [token.text for token in tokens]
    if "not" in words:
        words.remove("not")
        return " ".join(words)
    place = next((i for i, token in enumerate(tokens) if token.dep in ("aux", "auxpass", "ROOT")), None)
    if place is None:
        return " ".join(["Not", *words])
    token = tokens[place]
    if token.dep != "ROOT" or token.text.lower() in _BE + _MODALS:
        words[place] += " not"
    elif token.tag in _DO:
        words[place] = f"{_DO[token.tag]} not {token.lemma}"
    else:
        words.insert(0, "Not")
    return " ".join(words)


def find_spacy_folder() -> Path:
    """Return the folder of the spaCy model that :data:`SPACY_FOLDER` names; InputError if missing."""
    if importlib.util.find_spec("spacy") is None:
        what = "negation=spacy needs the package spacy, which isn't installed"
        raise InputError(what, hint="pip install 'cse-bench[spacy]', or take negation=rule")
    given = os.environ.get(SPACY_FOLDER, "")
    folder = Path(given).expanduser()
    if not given or not (folder / "config.cfg").is_file():
        expected = "the folder of a spaCy model such as en_core_web_sm, with config.cfg in it"
        raise InputError(f"negation=spacy needs a model, and {SPACY_FOLDER} names none", expected=expected)
    return folder


def hash_folder_files(folder: Path) -> str:
    """Return the sha256 over names and bytes of all files of a folder."""
    digest = hashlib.sha256()
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
        with file.open("rb") as stream:
            content = hashlib.file_digest(stream, "sha256").hexdigest()
        digest.update(f"{file.relative_to(folder).as_posix()}\0{content}\n".encode())
    return digest.hexdigest()


def load_spacy_negation(folder: Path) -> Callable[[str], str]:
    """Return the negation by a spaCy model; raises InputError for an unloadable one."""
    spacy: Any = importlib.import_module("spacy")
    try:
        parse = spacy.load(folder)
    except Exception as error:  # spaCy raises many kinds here
        reason = str(error).strip().split("\n")[0]
        raise InputError(f"this spaCy model can't be loaded: {reason}", where=folder.name) from error

    def negate(sentence: str) -> str:
        return negate_parsed([ParsedToken(t.text, t.dep_, t.tag_, t.lemma_) for t in parse(sentence)])

    return negate
