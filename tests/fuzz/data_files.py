"""Evaluation data, word vectors and training text: equal to what a tiny reader here finds, or refused."""

from __future__ import annotations

import gzip
import json
import math
import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bench.data import senteval
from bench.data.corpus import make_corpus, read_corpus
from bench.data.local_tasks import read_local_suite
from bench.data.suites import check_reference
from bench.data.tasks import LabelledTask, PairTask
from bench.data.training import read_copy
from bench.data.word_vectors import read_word_vectors
from bench.errors import BenchError
from bench.probes.overlap import training_lines
from tests.fuzz.core import ANSWER, REFUSED, Dice, RuleError, refused
from tests.fuzz.mutate import bytes_of, json_of, text_of

_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
Rows = list[tuple[str, ...]]


class DamagedError(Exception):
    """The tiny reader takes this for damaged."""


def number(text: str) -> float:
    """A decimal number, blanks around it allowed."""
    if not _NUMBER.fullmatch(text.strip()):
        raise DamagedError(text)
    return float(text)


def flat(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip()


def rows_of(raw: bytes, encoding: str = "utf-8") -> list[str]:
    """Lines end at a line feed, with or without a carriage return; a mark at the start is not text."""
    try:
        text = raw.decode(encoding)
    except UnicodeDecodeError as error:
        raise DamagedError(str(error)) from error
    if encoding == "utf-8":
        text = text.removeprefix("\ufeff")
    lines = text.split("\n")
    if not lines[-1]:
        lines.pop()
    return [line.removesuffix("\r") for line in lines]


def cut(line: str, columns: int) -> list[str]:
    parts = line.split("\t")
    if len(parts) != columns:
        raise DamagedError(line)
    return parts


_WORDS = ("the old man", "a dog", "two cities", "he reads", "it rains.", "A  small\tcar".replace("\t", " "))


def _sentence(dice: Dice) -> str:
    return f"{dice.pick(_WORDS)} {dice.below(50)}"


def _score(dice: Dice) -> str:
    return dice.pick(("0", "1.5", "3.000", "5", "2.25", "4.8", "0.0"))


class _Task:
    """One task of SentEval's: how its files are made, and how they are read here."""

    def __init__(
        self, task: str, make: Callable[[Dice], dict[str, bytes]], read: Callable[[dict[str, bytes]], Any]
    ):
        self.task, self.make, self.read = task, make, read


def _lines(rows: Sequence[str], ending: str = "\n") -> bytes:
    return "".join(row + ending for row in rows).encode()


def _make_sts(dice: Dice) -> dict[str, bytes]:
    files = {}
    for name in senteval.STS_YEARS["STS13"]:
        pairs = [f"{_sentence(dice)}\t{_sentence(dice)}" for _ in range(2 + dice.below(4))]
        files[f"STS/STS13-en-test/STS.input.{name}.txt"] = _lines(pairs)
        files[f"STS/STS13-en-test/STS.gs.{name}.txt"] = _lines([_score(dice) for _ in pairs])
    return files


def _gold(text: str) -> float:
    value = number(text)
    if not 0 <= value <= 5:
        raise DamagedError(text)
    return value


def _read_sts(files: dict[str, bytes]) -> Rows:
    found: Rows = []
    for name in senteval.STS_YEARS["STS13"]:
        pairs, golds = (
            rows_of(files[f"STS/STS13-en-test/STS.{part}.{name}.txt"]) for part in ("input", "gs")
        )
        if len(pairs) != len(golds):
            raise DamagedError("lengths")
        for pair, gold in zip(pairs, golds, strict=True):
            if gold.strip():
                a, b = cut(pair, 2)
                found.append((name, flat(a), flat(b), repr(_gold(gold))))
    return found


_STSB = "STS/STSBenchmark/sts-test.csv"
_SICK = "SICK/SICK_test_annotated.txt"


def _make_stsb(dice: Dice) -> dict[str, bytes]:
    rows = [f"news\tf\t2015\t{i}\t{_score(dice)}\t{_sentence(dice)}\t{_sentence(dice)}" for i in range(4)]
    return {_STSB: _lines(rows)}


def _make_sick(dice: Dice) -> dict[str, bytes]:
    rows = [f"{i}\t{_sentence(dice)}\t{_sentence(dice)}\t{_score(dice)}\tNEUTRAL" for i in range(4)]
    return {_SICK: _lines(["pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment", *rows])}


def _pairs(rows: Sequence[str], width: int, a: int, b: int, gold: int) -> Rows:
    cells = [cut(row, width) for row in rows]
    return [("test", flat(c[a]), flat(c[b]), repr(_gold(c[gold]))) for c in cells]


def _read_sick(files: dict[str, bytes]) -> Rows:
    rows = rows_of(files[_SICK])
    if not rows or not rows[0].startswith("pair_ID\tsentence_A\tsentence_B\trelatedness_score"):
        raise DamagedError("header")
    cut(rows[0], 5)
    return _pairs(rows[1:], 5, 1, 2, 3)


_MR = ("MR/rt-polarity.pos", "MR/rt-polarity.neg")
_TREC = ("TREC/train_5500.label", "TREC/TREC_10.label")
_SST = tuple(f"SST/binary/sentiment-{split}" for split in ("train", "dev", "test"))
_MRPC = tuple(f"MRPC/msr_paraphrase_{name}.txt" for name in ("train", "test"))
_HEADER = "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String"


def _make_each(
    files: Sequence[str], row: Callable[[Dice], str], head: str = ""
) -> Callable[[Dice], dict[str, bytes]]:
    def make(dice: Dice) -> dict[str, bytes]:
        return {file: _lines(([head] if head else []) + [row(dice) for _ in range(3)]) for file in files}

    return make


def _read_mr(files: dict[str, bytes]) -> Rows:
    parts = zip(_MR, ("positive", "negative"), "10", strict=True)
    return [
        (part, label, flat(row)) for file, part, label in parts for row in rows_of(files[file], "latin-1")
    ]


def _read_trec(files: dict[str, bytes]) -> Rows:
    found: Rows = []
    for file, part in zip(_TREC, ("train", "test"), strict=True):
        for row in rows_of(files[file], "latin-1"):
            match = re.fullmatch(r"([^:]*):([^ ]*) (.*)", row, re.DOTALL)
            if match is None:
                raise DamagedError(row)
            found.append((part, match[1], flat(match[3])))
    return found


def _read_sst(files: dict[str, bytes]) -> Rows:
    found: Rows = []
    for file in _SST:
        for row in rows_of(files[file]):
            text, label = cut(row, 2)
            if label not in ("0", "1"):
                raise DamagedError(row)
            found.append((file.rpartition("-")[2], label, flat(text)))
    return found


def _read_mrpc(files: dict[str, bytes]) -> Rows:
    found: Rows = []
    for file, part in zip(_MRPC, ("train", "test"), strict=True):
        rows = [cut(row, 5) for row in rows_of(files[file])]
        if not rows or rows[0][0] != "Quality":
            raise DamagedError("header")
        for label, _, _, a, b in rows[1:]:
            if label not in ("0", "1"):
                raise DamagedError(label)
            found.append((part, label, flat(a), flat(b)))
    return found


_TASKS = (
    _Task("STS13", _make_sts, _read_sts),
    _Task("STSB", _make_stsb, lambda files: _pairs(rows_of(files[_STSB]), 7, 5, 6, 4)),
    _Task("SICKR", _make_sick, _read_sick),
    _Task("MR", _make_each(_MR, _sentence), _read_mr),
    _Task("TREC", _make_each(_TREC, lambda d: f"DESC:def {_sentence(d)} ?"), _read_trec),
    _Task("SST2", _make_each(_SST, lambda d: f"{_sentence(d)}\t{d.below(2)}"), _read_sst),
    _Task(
        "MRPC",
        _make_each(_MRPC, lambda d: f"{d.below(2)}\t1\t2\t{_sentence(d)}\t{_sentence(d)}", _HEADER),
        _read_mrpc,
    ),
)


def _content(task: Any) -> Rows:
    """What a task that was read holds, in the tiny reader's form."""
    if isinstance(task, PairTask):
        return [
            (subset.name, a, b, repr(gold))
            for subset in task.subsets
            for a, b, gold in zip(subset.first, subset.second, subset.gold, strict=True)
        ]
    assert isinstance(task, LabelledTask)
    return [
        (split.name, label, split.first[i], *([split.second[i]] if split.second else []))
        for split in task.splits
        for i, label in enumerate(split.labels)
    ]


class DataFiles:
    """Readers of data files, each against an independent tiny one."""

    name = "data"
    share = 20

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def run(self, dice: Dice, steps: Sequence[Dice], log: list[str]) -> str:
        kinds = (self._senteval, self._senteval, self._corpus, self._vectors, self._local, self._overlap)
        answer = dice.pick(kinds)(dice, steps, log)
        return ANSWER if answer else REFUSED

    def _hold(self, said: Any, read: Callable[[], Any], found: Callable[[Any], Any]) -> bool:
        """Compare what the program reads with what is read here."""
        if isinstance(said, BenchError):
            return False
        try:
            expected = read()
        except DamagedError as error:
            raise RuleError(f"damaged ({error}), but it reads {found(said)!a:.500}") from error
        if found(said) != expected:
            raise RuleError(f"it reads {found(said)!a:.1500}\n       not {expected!a:.1500}")
        return True

    def _write(self, name: str, raw: bytes, log: list[str]) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(raw)
        log.append(f"{name}: {raw!r:.1500}")
        return path

    def _senteval(self, dice: Dice, steps: Sequence[Dice], log: list[str]) -> bool:
        task = dice.pick(_TASKS)
        files = task.make(dice)
        for step in steps:
            file = step.pick(sorted(files))
            files[file] = bytes_of(files[file], step)
        shutil.rmtree(self.folder / "downstream", ignore_errors=True)
        for file, raw in files.items():
            self._write(f"downstream/{file}", raw, log)
        root = self.folder / "downstream"
        said = refused(lambda: senteval.SOURCES[task.task].read(root))
        if isinstance(said, BenchError):
            if not any(Path(file).name in str(said) for file in files):
                raise RuleError(f"no file named: {said}")
            if not steps:
                raise RuleError(f"good data refused: {said}")
            return False
        answer = self._hold(said, lambda: task.read(files), _content)
        found = refused(lambda: check_reference(said, root), self.folder)  # made up, so never the reference
        if not isinstance(found, BenchError):
            raise RuleError("taken for the reference")
        return answer

    def _corpus(self, dice: Dice, steps: Sequence[Dice], log: list[str]) -> bool:
        sentences = [_sentence(dice) for _ in range(2 + dice.below(5))]
        raw = _lines(sentences)
        for step in steps:
            raw = bytes_of(raw, step)
        path = self._write("text.txt", raw, log)
        if dice.chance(0.4):
            text = make_corpus("text", sentences)
            said = refused(lambda: read_copy(path, text, where=f"--copy a={path}"), path)

            def of_copy() -> list[str]:
                found = [flat(row) for row in rows_of(raw)]
                if len(found) != len(sentences) or not all(found):
                    raise DamagedError("lines")
                return found

            return self._hold(said, of_copy, lambda corpus: list(corpus.sentences))
        exclude = (2, 3) if dice.chance(0.3) else None
        said = refused(lambda: read_corpus(path, exclude), path)

        def of_text() -> list[str]:
            kept = [row for n, row in enumerate(raw.split(b"\n"), 1) if not exclude or n not in exclude]
            found = [flat(row) for row in rows_of(b"\n".join(kept)) if flat(row)]
            if not found:
                raise DamagedError("empty")
            return found

        return self._hold(said, of_text, lambda corpus: list(corpus.sentences))

    def _overlap(self, dice: Dice, steps: Sequence[Dice], log: list[str]) -> bool:
        raw = _lines([_sentence(dice) for _ in range(4)])
        for step in steps:
            raw = bytes_of(raw, step)
        path = self._write("overlap.txt", raw, log)
        said = refused(lambda: list(training_lines(path)), path)
        return self._hold(said, lambda: [flat(r) for r in rows_of(raw) if flat(r)], lambda found: found)

    def _vectors(self, dice: Dice, steps: Sequence[Dice], log: list[str]) -> bool:
        dim, count = 1 + dice.below(4), 1 + dice.below(5)
        rows = [f"w{i} " + " ".join(f"{dice.number() - 0.5:.4f}" for _ in range(dim)) for i in range(count)]
        header = dice.chance(0.5)
        raw = _lines([*([f"{count} {dim}"] if header else []), *rows])
        for step in steps:
            raw = bytes_of(raw, step)
        packed = dice.chance(0.2)
        path = self._write(
            "words.txt.gz" if packed else "words.txt", gzip.compress(raw, mtime=0) if packed else raw, log
        )
        if packed:
            log.append(f"unpacked: {raw!r:.1500}")
        said = refused(lambda: read_word_vectors(path), path)
        if isinstance(said, BenchError) and not steps:
            raise RuleError(f"good vectors refused: {said}")
        return self._hold(
            said,
            lambda: _read_vectors(raw),
            lambda found: {word: found.vectors[row].tolist() for word, row in found.rows.items()},
        )

    def _local(self, dice: Dice, steps: Sequence[Dice], log: list[str]) -> bool:
        ending = dice.pick((".tsv", ".csv", ".jsonl"))
        kind, columns, rows = _local_rows(dice)
        raw = _local_file(ending, columns, rows)
        toml = f'[[task]]\nname = "t"\ntype = "{kind}"\n'
        parts = {"train": raw, "test": raw} if kind == "classification" else {"file": raw}
        toml += "".join(f'{part} = "{part}{ending}"\n' for part in parts)
        for step in steps:
            if step.chance(0.25):
                toml = text_of(toml, step)
            elif ending == ".jsonl" and step.chance(0.5):
                part = step.pick(sorted(parts))
                parts[part] = _json_line(parts[part], step)
            else:
                part = step.pick(sorted(parts))
                parts[part] = bytes_of(parts[part], step)
        path = self._write("suite.toml", toml.encode("utf-8", "surrogateescape"), log)
        for part, content in parts.items():
            self._write(f"{part}{ending}", content, log)
        said = refused(lambda: read_local_suite(path))
        if isinstance(said, BenchError):
            if str(self.folder) not in str(said):
                raise RuleError(f"no file named: {said}")
            if not steps:
                raise RuleError(f"good data refused: {said}")
            return False
        if len(said) != 1 or "columns" in toml or said[0].type != kind:
            return True
        return self._hold(
            said,
            lambda: [_read_local(content, ending, columns) for content in parts.values()],
            lambda tasks: [list(rows) for _, rows in tasks[0].tables],
        )


def _read_vectors(raw: bytes) -> dict[str, list[float]]:
    lines = [line.rstrip() for line in raw.split(b"\n")]
    found: dict[str, list[float]] = {}
    total, dim, promised = 0, 0, -1
    for place, line in enumerate(lines):
        fields = line.split(b" ")
        if place == 0 and len(fields) == 2 and all(field.isdigit() for field in fields) and int(fields[1]):
            promised, dim = int(fields[0]), int(fields[1])
        elif line:
            dim = dim or len(fields) - 1
            if dim < 1 or len(fields) <= dim:
                raise DamagedError(repr(line))
            try:
                values = [number(field.decode("ascii")) for field in fields[-dim:]]
                word = b" ".join(fields[:-dim]).decode()
            except UnicodeDecodeError as error:
                raise DamagedError(repr(line)) from error
            row = np.array(values, dtype=np.float64).clip(-3.4e38, 3.4e38).astype(np.float32)
            if any(math.isinf(value) or abs(value) > 3.4e38 for value in values):
                raise DamagedError(repr(line))
            total += 1
            found.setdefault(word, row.tolist())
    if not total or promised not in (-1, total):
        raise DamagedError("count")
    return found


def _local_rows(dice: Dice) -> tuple[str, tuple[str, ...], Rows]:
    kind = dice.pick(("sts", "bitext", "classification", "reranking"))
    if kind == "sts":
        return (
            kind,
            ("sentence1", "sentence2", "score"),
            [(_sentence(dice), _sentence(dice), s) for s in ("1", "4.5", "2")],
        )
    if kind == "bitext":
        return kind, ("sentence1", "sentence2"), [(_sentence(dice), _sentence(dice)) for _ in range(3)]
    if kind == "classification":
        return kind, ("text", "label"), [(_sentence(dice), label) for label in ("good", "bad", "good", "bad")]
    rows: Rows = [(f"query {q}", f"{_sentence(dice)} {r}", str(r)) for q in range(2) for r in (1, 0)]
    return kind, ("query", "document", "relevant"), rows


def _local_file(ending: str, columns: tuple[str, ...], rows: Rows) -> bytes:
    if ending == ".jsonl":
        return _lines([json.dumps(dict(zip(columns, row, strict=True))) for row in rows])
    separator = "," if ending == ".csv" else "\t"
    return _lines([separator.join(row) for row in (columns, *rows)])


def _json_line(raw: bytes, dice: Dice) -> bytes:
    lines = raw.split(b"\n")
    place = dice.below(len(lines))
    if not lines[place].startswith(b"{"):
        return raw
    try:
        data = json_of(json.loads(lines[place]), dice)
    except ValueError:
        return raw
    lines[place] = json.dumps(data).encode()
    if dice.chance(0.2):
        lines[place] = dice.pick(
            (b"[" * 100_000, lines[place].replace(b"{", b'{"score": "1", "label": "good", ', 1))
        )
    return b"\n".join(lines)


def _read_local(raw: bytes, ending: str, columns: tuple[str, ...]) -> Rows:
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DamagedError("bytes") from error
    found = _read_json(text, columns) if ending == ".jsonl" else _read_table(text, ending == ".csv", columns)
    for row in found:
        for name, value in zip(columns, row, strict=True):
            if name in ("score", "relevant"):
                number(value)
    return found


def _read_json(text: str, columns: tuple[str, ...]) -> Rows:
    found: Rows = []
    for line in re.split(r"\r\n|\r|\n", text):
        if line.strip():
            pairs: list[tuple[str, Any]] = json.loads(line, object_pairs_hook=lambda found: found)
            if len({name for name, _ in pairs}) < len(pairs):
                raise DamagedError(line)
            found.append(tuple(str(dict(pairs)[name]) for name in columns))
    return found


def _read_table(text: str, quoted: bool, columns: tuple[str, ...]) -> Rows:
    lines = re.split(r"\r\n|\r|\n", text)
    plain = [line.split("\t") for line in (lines if lines[-1] else lines[:-1])]
    header, *rows = csv_rows(text) if quoted else plain
    if len(set(header)) < len(header):
        raise DamagedError("columns")
    for row in rows:
        if len(row) != len(header):
            raise DamagedError(repr(row))
    return [tuple(row[header.index(name)] for name in columns) for row in rows]


def csv_rows(text: str) -> list[list[str]]:
    """Rows of a csv, a blank line as one without cells; a quoted cell ends at its quote."""
    rows: list[list[str]] = []
    place = 0
    while place < len(text):
        row: list[str] = []
        end = re.compile(r"\r\n|\r|\n|$").match(text, place)
        while not end:
            cell = re.compile(r'"((?:[^"]|"")*)"|([^,\r\n]*)').match(text, place)
            assert cell is not None
            if cell[1] is None and cell[2].startswith('"'):
                raise DamagedError("an open quote")
            row.append(cell[2] if cell[1] is None else cell[1].replace('""', '"'))
            place = cell.end()
            end = re.compile(r"\r\n|\r|\n|$").match(text, place)
            if text[place : place + 1] == ",":
                place += 1
                end = None
                if re.compile(r"\r|\n|$").match(text, place):  # an empty last cell
                    row.append("")
                    end = re.compile(r"\r\n|\r|\n|$").match(text, place)
            elif not end:
                raise DamagedError("a text after its quote")
        rows.append(row)
        place = max(end.end(), place + (end.end() == place))
    return rows
