"""Readers for SentEval's folder layout, with every quirk of its files.

Lines end at a line feed only (SentEval's ``splitlines`` would also cut at rarer separators). White space is
normalised as SentEval does. STS12-16 and STS-B are lower-cased and tokenised, SICK is cased.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from bench.data.tasks import MARK, LabelledSplit, LabelledTask, PairSubset, PairTask, Task, normalise_spaces
from bench.errors import DataError
from bench.schema import parse_decimal

STS_YEARS = {
    "STS12": ("MSRpar", "MSRvid", "SMTeuroparl", "surprise.OnWN", "surprise.SMTnews"),
    "STS13": ("FNWN", "headlines", "OnWN"),
    "STS14": ("deft-forum", "deft-news", "headlines", "images", "OnWN", "tweet-news"),
    "STS15": ("answers-forums", "answers-students", "belief", "headlines", "images"),
    "STS16": ("answer-answer", "headlines", "plagiarism", "postediting", "question-question"),
}
SICK_HEADER = ("pair_ID\tsentence_A\tsentence_B\trelatedness_score", 5)
"""Begin and number of columns of SICK's first lines."""

_HINT = "bench data fetch sts7 (or transfer7) gets it"

Parse = Callable[[str, str, str], tuple[str, ...]]
"""From (line, place, split) to the label and one or two sentences."""


@dataclass(frozen=True)
class TaskFiles:
    """A task's files below the ``downstream`` folder, and their reader."""

    files: tuple[str, ...]
    read: Callable[[Path], Task]


def read_lines(root: Path, file: str, encoding: str = "utf-8", hint: str = _HINT) -> list[str]:
    """Return a file's lines, stripped of line ends and UTF-8's byte order mark; raises DataError."""
    path = root / file
    try:
        raw = path.read_bytes()
    except OSError as error:
        what = f"can't be read: {error.strerror}" if path.exists() else "this data file is missing"
        raise DataError(what, where=str(path), hint=hint) from error
    try:
        text = raw.decode(encoding)
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise DataError(f"these bytes are not {encoding}", where=f"{path}:{line}") from error
    parts = (text.removeprefix(MARK) if encoding == "utf-8" else text).split("\n")
    if parts[-1] == "":
        parts.pop()
    return [part.removesuffix("\r") for part in parts]


def _parse_gold(text: str, where: str) -> float:
    try:
        value = parse_decimal(text)
    except ValueError:
        value = float("nan")
    if not 0 <= value <= 5:
        raise DataError(f"'{text}' is not a gold score", where=where, expected="a number from 0 to 5")
    return value


def _split_columns(line: str, count: int, where: str, form: str, separator: str = "\t") -> list[str]:
    parts = line.split(separator)
    if len(parts) != count:
        raise DataError(f"{len(parts)} column(s)", where=where, expected=f"{count}: {form}")
    return parts


def _read_sts_subset(root: Path, year: str, name: str) -> PairSubset:
    folder = f"STS/{year}-en-test"
    input_file, gold_file = f"{folder}/STS.input.{name}.txt", f"{folder}/STS.gs.{name}.txt"
    pairs, golds = read_lines(root, input_file), read_lines(root, gold_file)
    if len(pairs) != len(golds):
        (least, short), (most, long) = sorted([(len(pairs), input_file), (len(golds), gold_file)])
        expected = f"{most} lines as in {Path(long).name}"
        raise DataError("the file ends here", where=f"{root / short}:{least}", expected=expected)
    rows = []
    for number, (pair, score) in enumerate(zip(pairs, golds, strict=True), start=1):
        if score.strip():  # STS15 and STS16: an empty gold line means unlabelled
            where = f"{root / input_file}:{number}"
            left, right = _split_columns(pair, 2, where, "two sentences with a tab between")
            rows.append((left, right, _parse_gold(score, f"{root / gold_file}:{number}")))
    return _make_subset(name, rows, input_file, len(pairs))


def _make_subset(name: str, rows: list[tuple[str, str, float]], file: str, last_line: int) -> PairSubset:
    first, second, gold = tuple(zip(*rows, strict=True)) or ((), (), ())
    first, second = (tuple(map(normalise_spaces, column)) for column in (first, second))
    return PairSubset(name, first, second, gold, file, last_line)


def _sts_files(year: str) -> TaskFiles:
    names = STS_YEARS[year]
    files = tuple(f"STS/{year}-en-test/STS.{part}.{name}.txt" for name in names for part in ("input", "gs"))

    def read(root: Path) -> PairTask:
        return PairTask(year, tuple(_read_sts_subset(root, year, name) for name in names))

    return TaskFiles(files, read)


def pair_files(
    task: str, file: str, columns: tuple[int, int, int], width: int, header: tuple[str, int] | None = None
) -> TaskFiles:
    """Describe a tab-separated file of pairs, with the columns of the sentences and of the score."""
    a, b, score = columns

    def read(root: Path) -> PairTask:
        lines = _read_rows(root, file, header)
        rows = []
        for number, line in lines:
            where = f"{root / file}:{number}"
            parts = _split_columns(line, width, where, "tab-separated, no quoting")
            rows.append((parts[a], parts[b], _parse_gold(parts[score], where)))
        split = task.partition("-")[2] or "test"
        return PairTask(task, (_make_subset(split, rows, file, len(lines) + (header is not None)),))

    return TaskFiles((file,), read)


def _read_rows(
    root: Path, file: str, header: tuple[str, int] | None, encoding: str = "utf-8"
) -> list[tuple[int, str]]:
    """Return number and text of every line after the header, which is checked."""
    rows = list(enumerate(read_lines(root, file, encoding), start=1))
    if header is None:
        return rows
    begin, width = header
    if not rows or not rows[0][1].startswith(begin) or rows[0][1].count("\t") + 1 != width:
        expected = f"{', '.join(begin.split())}: {width} columns"
        raise DataError("the header line is missing", where=f"{root / file}:1", expected=expected)
    return rows[1:]


def labelled_files(
    task: str,
    files: dict[str, str],
    parse: Parse,
    encoding: str = "utf-8",
    header: tuple[str, int] | None = None,
) -> TaskFiles:
    """Describe a task of labelled sentences or pairs, an item a line, with a file for each split."""

    def read(root: Path) -> LabelledTask:
        splits = []
        for split, file in files.items():
            rows = _read_rows(root, file, header, encoding)
            items = [parse(row, f"{root / file}:{number}", split) for number, row in rows]
            first = tuple(normalise_spaces(item[1]) for item in items)
            second = tuple(normalise_spaces(item[2]) for item in items if len(item) > 2)
            labels = tuple(item[0] for item in items)
            splits.append(LabelledSplit(split, first, second, labels, file, len(rows) + (header is not None)))
        return LabelledTask(task, tuple(splits))

    return TaskFiles(tuple(files.values()), read)


def _parse_trec(row: str, where: str, split: str) -> tuple[str, ...]:
    label, colon, rest = row.partition(":")
    _, blank, question = rest.partition(" ")
    if not colon or not blank:
        raise DataError("no question with its type", where=where, expected="COARSE:fine question")
    return label, question


def _parse_sst2(row: str, where: str, split: str) -> tuple[str, ...]:
    sentence, label = _split_columns(row, 2, where, "a sentence, a tab and its label")
    return _check_label(label, "01", where), sentence


def _parse_sst5(row: str, where: str, split: str) -> tuple[str, ...]:
    label, _, sentence = row.partition(" ")
    return _check_label(label, "01234", where), sentence


def _parse_mrpc(row: str, where: str, split: str) -> tuple[str, ...]:
    label, _, _, first, second = _split_columns(row, 5, where, "label, two ids, two sentences; no quoting")
    return _check_label(label, "01", where), first, second


def _check_label(label: str, allowed: str, where: str) -> str:
    if len(label) != 1 or label not in allowed:
        raise DataError(f"'{label}' is not a label", where=where, expected=f"one of {', '.join(allowed)}")
    return label


SOURCES: dict[str, TaskFiles] = {year: _sts_files(year) for year in STS_YEARS}
for _task, _split in (("STSB", "test"), ("STSB-dev", "dev"), ("STSB-train", "train")):
    SOURCES[_task] = pair_files(_task, f"STS/STSBenchmark/sts-{_split}.csv", (5, 6, 4), 7)
for _task, _file in (("SICKR", "test_annotated"), ("SICKR-dev", "trial"), ("SICKR-train", "train")):
    SOURCES[_task] = pair_files(_task, f"SICK/SICK_{_file}.txt", (1, 2, 3), 5, SICK_HEADER)
for _task, _positive, _negative in (
    ("MR", "rt-polarity.pos", "rt-polarity.neg"),
    ("CR", "custrev.pos", "custrev.neg"),
    ("SUBJ", "subj.objective", "subj.subjective"),
    ("MPQA", "mpqa.pos", "mpqa.neg"),
):
    _classes = {"positive": f"{_task}/{_positive}", "negative": f"{_task}/{_negative}"}
    # an empty line of CR and MPQA is an (empty) sample, as in SentEval
    SOURCES[_task] = labelled_files(
        _task, _classes, lambda row, _, split: (str(int(split == "positive")), row), "latin-1"
    )
for _task, _kind, _parse in (("SST2", "binary", _parse_sst2), ("SST5", "fine", _parse_sst5)):
    _files = {split: f"SST/{_kind}/sentiment-{split}" for split in ("train", "dev", "test")}
    SOURCES[_task] = labelled_files(_task, _files, _parse)
_files = {"train": "TREC/train_5500.label", "test": "TREC/TREC_10.label"}
SOURCES["TREC"] = labelled_files("TREC", _files, _parse_trec, "latin-1")
_files = {split: f"MRPC/msr_paraphrase_{split}.txt" for split in ("train", "test")}
SOURCES["MRPC"] = labelled_files("MRPC", _files, _parse_mrpc, header=("Quality", 5))


def find_root(data: Path) -> Path:
    """Return SentEval's ``downstream`` folder at or below ``data``; raises DataError."""
    for place in (".", "downstream", "senteval/downstream", "data/downstream", "SentEval/data/downstream"):
        folder = data / place
        if any((folder / name).is_dir() for name in ("STS", "SICK", "MR", "TREC")):
            return folder
    expected = "a folder STS, SICK, MR or TREC in it, or in downstream/ or senteval/downstream/ below it"
    hint = "bench data fetch sts7 gets it"
    raise DataError("no SentEval data here", where=str(data), expected=expected, hint=hint)


def iter_files(tasks: tuple[str, ...]) -> Iterator[str]:
    """Yield the files of these tasks, relative to the ``downstream`` folder."""
    for task in tasks:
        yield from SOURCES[task].files
