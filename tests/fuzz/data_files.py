"""Evaluation data, word vectors and training texts: read as a tiny reader reads them, or refused."""

from __future__ import annotations

import codecs
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
from bench.data.training_data import read_copy
from bench.data.word_vectors import read_word_vectors
from bench.errors import BenchError
from bench.probes.training_overlap import read_training_lines
from tests.fuzz.core import ANSWER, REFUSED, Dice, RuleError, refused
from tests.fuzz.mutate import bytes_of, damaged, json_of, text_of

_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
Rows = list[tuple[str, ...]]
Files = dict[str, bytes]
Maker = Callable[[Dice], Files]
Reader = Callable[[Files], Rows]


class DamagedError(Exception):
    """Damage according to the tiny reader."""


def number(text: str) -> float:
    """Parse a decimal number, blanks around it allowed."""
    if not _NUMBER.fullmatch(text.strip()):
        raise DamagedError(text)
    return float(text.strip())


def flat(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip()


def rows_of(raw: bytes, encoding: str = "utf-8") -> list[str]:
    """Split at line feeds, with or without a carriage return, without a mark at the start."""
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


_WORDS = ("the old man", "a dog", "two cities", "he reads", "it rains.", "A  small car")


def _sentence(dice: Dice) -> str:
    return f"{dice.choice(_WORDS)} {dice.randrange(50)}"


def _score(dice: Dice) -> str:
    return dice.choice(("0", "1.5", "3.000", "5", "2.25", "4.8", "0.0"))


def _lines(rows: Sequence[str]) -> bytes:
    return "".join(f"{row}\n" for row in rows).encode()


def _make_sts(dice: Dice) -> Files:
    files = {}
    for name in senteval.STS_YEARS["STS13"]:
        pairs = [f"{_sentence(dice)}\t{_sentence(dice)}" for _ in range(2 + dice.randrange(4))]
        files[f"STS/STS13-en-test/STS.input.{name}.txt"] = _lines(pairs)
        files[f"STS/STS13-en-test/STS.gs.{name}.txt"] = _lines([_score(dice) for _ in pairs])
    return files


def _gold(text: str) -> str:
    value = number(text)
    if not 0 <= value <= 5:
        raise DamagedError(text)
    return repr(value)


def _read_sts(files: Files) -> Rows:
    rows: Rows = []
    for name in senteval.STS_YEARS["STS13"]:
        pairs, golds = (rows_of(files[f"STS/STS13-en-test/STS.{p}.{name}.txt"]) for p in ("input", "gs"))
        if len(pairs) != len(golds):
            raise DamagedError("lengths")
        for pair, gold in zip(pairs, golds, strict=True):
            if gold.strip():
                a, b = cut(pair, 2)
                rows.append((name, flat(a), flat(b), _gold(gold)))
    return rows


def _pair(row: str, width: int, a: int, b: int, gold: int) -> tuple[str, ...]:
    cells = cut(row, width)
    return flat(cells[a]), flat(cells[b]), _gold(cells[gold])


def _question(row: str) -> tuple[str, ...]:
    match = re.fullmatch(r"([^:]*):([^ ]*) (.*)", row, re.DOTALL)
    if match is None:
        raise DamagedError(row)
    return match[1], flat(match[3])


def _binary(row: str, width: int, label: int, *texts: int) -> tuple[str, ...]:
    cells = cut(row, width)
    if cells[label] not in ("0", "1"):
        raise DamagedError(row)
    return cells[label], *(flat(cells[text]) for text in texts)


def _each(
    parts: dict[str, tuple[str, ...]],
    make: Callable[[Dice], str],
    read: Callable[[str], tuple[str, ...]],
    *,
    rows: int = 3,
    header: str = "",
    encoding: str = "utf-8",
) -> tuple[Maker, Reader]:
    """Return maker and reader of files of one kind of row; each row read begins with its part."""

    def made(dice: Dice) -> Files:
        head = [header] if header else []
        return {file: _lines([*head, *(make(dice) for _ in range(rows))]) for file in parts}

    def read_rows(files: Files) -> Rows:
        rows: Rows = []
        for file, part in parts.items():
            lines = rows_of(files[file], encoding)
            if header:
                first = cut(lines.pop(0), header.count("\t") + 1) if lines else []
                if first[: len(_CHECKED[header])] != _CHECKED[header]:
                    raise DamagedError("header")
            rows += [(*part, *read(line)) for line in lines]
        return rows

    return made, read_rows


_SICK_HEADER = "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment"
_MRPC_HEADER = "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String"
_CHECKED = {_SICK_HEADER: _SICK_HEADER.split("\t")[:4], _MRPC_HEADER: ["Quality"]}
"""The cells that must be in a header."""
_TASKS: dict[str, tuple[Maker, Reader]] = {
    "STS13": (_make_sts, _read_sts),
    "STSB": _each(
        {"STS/STSBenchmark/sts-test.csv": ("test",)},
        lambda d: f"news\tf\t2015\t1\t{_score(d)}\t{_sentence(d)}\t{_sentence(d)}",
        lambda row: _pair(row, 7, 5, 6, 4),
        rows=4,
    ),
    "SICKR": _each(
        {"SICK/SICK_test_annotated.txt": ("test",)},
        lambda d: f"1\t{_sentence(d)}\t{_sentence(d)}\t{_score(d)}\tNEUTRAL",
        lambda row: _pair(row, 5, 1, 2, 3),
        rows=4,
        header=_SICK_HEADER,
    ),
    "MR": _each(
        {"MR/rt-polarity.pos": ("positive", "1"), "MR/rt-polarity.neg": ("negative", "0")},
        _sentence,
        lambda row: (flat(row),),
        encoding="latin-1",
    ),
    "TREC": _each(
        {"TREC/train_5500.label": ("train",), "TREC/TREC_10.label": ("test",)},
        lambda d: f"DESC:def {_sentence(d)} ?",
        _question,
        encoding="latin-1",
    ),
    "SST2": _each(
        {f"SST/binary/sentiment-{split}": (split,) for split in ("train", "dev", "test")},
        lambda d: f"{_sentence(d)}\t{d.randrange(2)}",
        lambda row: _binary(row, 2, 1, 0),
    ),
    "MRPC": _each(
        {f"MRPC/msr_paraphrase_{split}.txt": (split,) for split in ("train", "test")},
        lambda d: f"{d.randrange(2)}\t1\t2\t{_sentence(d)}\t{_sentence(d)}",
        lambda row: _binary(row, 5, 0, 3, 4),
        header=_MRPC_HEADER,
    ),
}


def _content(task: Any) -> Rows:
    """Return a task in the tiny reader's form."""
    if isinstance(task, PairTask):
        subsets = [(s.name, zip(s.first, s.second, map(repr, s.gold), strict=True)) for s in task.subsets]
        return [(name, *row) for name, rows in subsets for row in rows]
    assert isinstance(task, LabelledTask)
    return [
        (split.name, label, split.first[i], *split.second[i : i + 1])
        for split in task.splits
        for i, label in enumerate(split.labels)
    ]


def hold(result: Any, read: Callable[[], Any], content: Callable[[Any], Any]) -> bool:
    """Compare the program's result with the tiny reader's; False for an error."""
    if isinstance(result, BenchError):
        return False
    try:
        expected = read()
    except DamagedError as error:
        raise RuleError(f"damaged ({error}), but it reads {content(result)!a:.500}") from error
    if content(result) != expected:
        raise RuleError(f"it reads {content(result)!a:.1500}\n       not {expected!a:.1500}")
    return True


class DataFiles:
    """Readers of data files, each against an independent tiny one."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def run(self, dice: Dice, steps: Sequence[Dice], log: list[str]) -> str:
        kinds = (*(self._senteval, self._text) * 2, self._vectors, self._local)
        return ANSWER if dice.choice(kinds)(dice, steps, log) else REFUSED

    def _write(self, name: str, raw: bytes, log: list[str]) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(raw)
        log.append(f"{name}: {raw!r:.1500}")
        return path

    def _senteval(self, dice: Dice, steps: Sequence[Dice], log: list[str]) -> bool:
        task = dice.choice(tuple(_TASKS))
        make, read = _TASKS[task]
        files = make(dice)
        for step in steps:
            file = step.choice(sorted(files))
            files[file] = bytes_of(files[file], step)
        shutil.rmtree(self.folder / "downstream", ignore_errors=True)
        for file, raw in files.items():
            self._write(f"downstream/{file}", raw, log)
        root = self.folder / "downstream"
        result = refused(lambda: senteval.SOURCES[task].read(root), good=not steps)
        if isinstance(result, BenchError):
            if not any(Path(file).name in str(result) for file in files):
                raise RuleError(f"no file named: {result}")
            return False
        if not isinstance(refused(lambda: check_reference(result, root), self.folder), BenchError):
            raise RuleError("taken for the reference")
        return hold(result, lambda: read(files), _content)

    def _text(self, dice: Dice, steps: Sequence[Dice], log: list[str]) -> bool:
        sentences = [_sentence(dice) for _ in range(2 + dice.randrange(5))]
        raw = damaged(_lines(sentences), steps)
        path = self._write("text.txt", raw, log)
        kind, exclude = dice.choice(("copy", "corpus", "overlap")), (2, 3) if dice.chance(0.3) else ()

        def expected() -> list[str]:
            chosen = [
                row for n, row in enumerate(raw.split(b"\n"), 1) if n not in exclude or kind != "corpus"
            ]
            rows = [flat(row) for row in rows_of(b"\n".join(chosen))]
            if kind == "copy" and (len(rows) != len(sentences) or not all(rows)):
                raise DamagedError("lines")
            if kind == "corpus" and not any(rows):
                raise DamagedError("empty")
            return [row for row in rows if row]

        def read() -> list[str]:
            if kind == "overlap":
                return list(read_training_lines(path))
            if kind == "corpus":
                return list(read_corpus(path, exclude or None).sentences)
            return list(read_copy(path, make_corpus("text", sentences), where=f"--copy a={path}").sentences)

        return hold(refused(read, path), expected, lambda rows: rows)

    def _vectors(self, dice: Dice, steps: Sequence[Dice], log: list[str]) -> bool:
        dim, count = 1 + dice.randrange(4), 1 + dice.randrange(5)
        rows = [f"w{i} " + " ".join(f"{dice.random() - 0.5:.4f}" for _ in range(dim)) for i in range(count)]
        header = dice.chance(0.5)
        raw = damaged(_lines([*([f"{count} {dim}"] if header else []), *rows]), steps)
        if dice.chance(0.2):
            log.append(f"unpacked: {raw!r:.1500}")
            path = self._write("words.txt.gz", gzip.compress(raw, mtime=0), log)
        else:
            path = self._write("words.txt", raw, log)
        return hold(
            refused(lambda: read_word_vectors(path), path, good=not steps),
            lambda: _read_vectors(raw.removeprefix(codecs.BOM_UTF8)),
            lambda words: {word: words.vectors[row].tolist() for word, row in words.rows.items()},
        )

    def _local(self, dice: Dice, steps: Sequence[Dice], log: list[str]) -> bool:
        ending = dice.choice((".tsv", ".csv", ".jsonl"))
        kind = dice.choice(tuple(_COLUMNS))
        columns = _COLUMNS[kind]
        raw = _local_file(ending, columns, _local_rows(kind, dice))
        toml = f'[[task]]\nname = "t"\ntype = "{kind}"\n'
        parts = {"train": raw, "test": raw} if kind == "classification" else {"file": raw}
        toml += "".join(f'{part} = "{part}{ending}"\n' for part in parts)
        for step in steps:
            if step.chance(0.25):
                toml = text_of(toml, step)
            elif ending == ".jsonl" and step.chance(0.5):
                part = step.choice(sorted(parts))
                parts[part] = _json_line(parts[part], step)
            else:
                part = step.choice(sorted(parts))
                parts[part] = bytes_of(parts[part], step)
        path = self._write("suite.toml", toml.encode("utf-8", "surrogateescape"), log)
        for part, content in parts.items():
            self._write(f"{part}{ending}", content, log)
        suite = refused(lambda: read_local_suite(path), good=not steps)
        if isinstance(suite, BenchError):
            if str(self.folder) not in str(suite):
                raise RuleError(f"no file named: {suite}")
            return False
        if len(suite) != 1 or "columns" in toml or suite[0].type != kind:
            return True
        return hold(
            suite,
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


_COLUMNS = {
    "sts": ("sentence1", "sentence2", "score"),
    "bitext": ("sentence1", "sentence2"),
    "classification": ("text", "label"),
    "reranking": ("query", "document", "relevant"),
}


def _local_rows(kind: str, dice: Dice) -> Rows:
    if kind == "sts":
        return [(_sentence(dice), _sentence(dice), score) for score in ("1", "4.5", "2")]
    if kind == "bitext":
        return [(_sentence(dice), _sentence(dice)) for _ in range(3)]
    if kind == "classification":
        return [(_sentence(dice), label) for label in ("good", "bad", "good", "bad")]
    return [(f"query {q}", f"{_sentence(dice)} {r}", str(r)) for q in range(2) for r in (1, 0)]


def _local_file(ending: str, columns: tuple[str, ...], rows: Rows) -> bytes:
    if ending == ".jsonl":
        return _lines([json.dumps(dict(zip(columns, row, strict=True))) for row in rows])
    separator = "," if ending == ".csv" else "\t"
    return _lines([separator.join(row) for row in (columns, *rows)])


def _json_line(raw: bytes, dice: Dice) -> bytes:
    lines = raw.split(b"\n")
    place = dice.randrange(len(lines))
    if not lines[place].startswith(b"{"):
        return raw
    try:
        data = json_of(json.loads(lines[place]), dice)
    except ValueError:
        return raw
    lines[place] = json.dumps(data).encode()
    if dice.chance(0.2):
        lines[place] = dice.choice(
            (b"[" * 100_000, lines[place].replace(b"{", b'{"score": "1", "label": "good", ', 1))
        )
    return b"\n".join(lines)


def _read_local(raw: bytes, ending: str, columns: tuple[str, ...]) -> Rows:
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DamagedError("bytes") from error
    rows = _read_json(text, columns) if ending == ".jsonl" else _read_table(text, ending == ".csv", columns)
    for value in (row[2] for row in rows if columns[-1] in ("score", "relevant")):
        number(value)
    return rows


def _read_json(text: str, columns: tuple[str, ...]) -> Rows:
    rows: Rows = []
    for line in filter(str.strip, re.split(r"\r\n|\r|\n", text)):
        pairs: list[tuple[str, Any]] = json.loads(line, object_pairs_hook=list)
        if len(dict(pairs)) < len(pairs):
            raise DamagedError(line)
        rows.append(tuple(str(dict(pairs)[name]) for name in columns))
    return rows


def _read_table(text: str, quoted: bool, columns: tuple[str, ...]) -> Rows:
    lines = re.split(r"\r*\n|\r", text)
    header, *rows = (
        csv_rows(text) if quoted else [line.split("\t") for line in lines[: len(lines) - (not lines[-1])]]
    )
    while rows and rows[-1] in ([], [""]):
        rows.pop()
    if len(set(header)) < len(header) or any(len(row) != len(header) for row in rows):
        raise DamagedError("columns")
    return [tuple(row[header.index(name)] for name in columns) for row in rows]


_CELL = re.compile(r'(?:"((?:[^"]|"")*)"|([^,\r\n"][^,\r\n]*|))(,|\r\n|\r|\n|\Z)')


def csv_rows(text: str) -> list[list[str]]:
    """Rows of a csv, a blank line as one without cells; a quoted cell ends at its quote."""
    rows: list[list[str]] = []
    row: list[str] = []
    place = 0
    while place < len(text) or row:
        cell = _CELL.match(text, place)
        if cell is None:
            raise DamagedError("an open quote, or a text after a quote")
        if row or cell[3] == "," or cell[0] != cell[3]:
            row.append(cell[2] if cell[1] is None else cell[1].replace('""', '"'))
        place = cell.end()
        if cell[3] != ",":
            rows.append(row)
            row = []
    return rows
