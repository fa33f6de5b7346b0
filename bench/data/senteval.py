"""Readers for SentEval's folder layout, with every quirk of its files.

Lines end at a line feed only (SentEval's ``splitlines`` would also cut at rarer separators); white space
within a sentence is normalised as SentEval does. The text is otherwise taken as it is: STS12-16 and STS-B
are lower-cased and tokenised, SICK is cased.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from bench.data.tasks import (
    MARK,
    LabelledSplit,
    LabelledTask,
    PairSubset,
    PairTask,
    Task,
    normalise_spaces,
)
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
"""How SICK's first lines begin, and how many columns they have."""

_HINT = "bench data fetch sts7 (or transfer7) gets it"

Parse = Callable[[str, str, str], tuple[str, ...]]
"""From (line, place, split) to the label and the sentence, or two sentences."""


@dataclass(frozen=True)
class TaskFiles:
    """Where a task's files are below the ``downstream`` folder, and how they are read."""

    files: tuple[str, ...]
    read: Callable[[Path], Task]


def read_lines(root: Path, file: str, encoding: str = "utf-8", hint: str = _HINT) -> list[str]:
    """Return a file's lines without line ends, and without a byte order mark before UTF-8.

    Args:
        root: Folder.
        file: File below it.
        encoding: Of the file.
        hint: How to get the file, said where it is missing.

    Raises:
        DataError: missing or unreadable file, or (file and line) bytes that are not in the encoding.
    """
    path = root / file
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise DataError(
            "this data file is missing" if not path.exists() else f"can't be read: {error.strerror}",
            where=str(path),
            hint=hint,
        ) from error
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
        short, long = (input_file, gold_file) if len(pairs) < len(golds) else (gold_file, input_file)
        raise DataError(
            "the file ends here",
            where=f"{root / short}:{min(len(pairs), len(golds))}",
            expected=f"{max(len(pairs), len(golds))} lines as in {Path(long).name}",
        )
    found = []
    for number, (pair, score) in enumerate(zip(pairs, golds, strict=True), start=1):
        if score.strip():  # STS15 and STS16: an empty gold line means unlabelled
            left, right = _split_columns(
                pair, 2, f"{root / input_file}:{number}", "two sentences with a tab between"
            )
            found.append((left, right, _parse_gold(score, f"{root / gold_file}:{number}")))
    return _make_subset(name, found, input_file, len(pairs))


def _make_subset(name: str, rows: list[tuple[str, str, float]], file: str, last_line: int) -> PairSubset:
    first, second, gold = tuple(zip(*rows, strict=True)) or ((), (), ())
    return PairSubset(
        name, tuple(map(normalise_spaces, first)), tuple(map(normalise_spaces, second)), gold, file, last_line
    )


def _sts_files(year: str) -> TaskFiles:
    names = STS_YEARS[year]
    files = tuple(f"STS/{year}-en-test/STS.{part}.{name}.txt" for name in names for part in ("input", "gs"))
    return TaskFiles(
        files, lambda root: PairTask(year, tuple(_read_sts_subset(root, year, name) for name in names))
    )


def pair_files(
    task: str, file: str, columns: tuple[int, int, int], width: int, header: tuple[str, int] | None = None
) -> TaskFiles:
    """One tab-separated file of pairs.

    Args:
        task: Its name; what follows its first hyphen names the split, else it is "test".
        file: The file.
        columns: Those of the sentences and of the score.
        width: Number of columns.
        header: How its first line begins and how many columns it has; None for a file without one.
    """
    a, b, score = columns

    def read(root: Path) -> PairTask:
        rows = _read_rows(root, file, header)
        found = []
        for number, row in rows:
            where = f"{root / file}:{number}"
            parts = _split_columns(row, width, where, "tab-separated, no quoting")
            found.append((parts[a], parts[b], _parse_gold(parts[score], where)))
        split = task.partition("-")[2] or "test"
        return PairTask(task, (_make_subset(split, found, file, len(rows) + (header is not None)),))

    return TaskFiles((file,), read)


def _read_rows(
    root: Path, file: str, header: tuple[str, int] | None, encoding: str = "utf-8"
) -> list[tuple[int, str]]:
    """Number and text of every line after the header, which is checked."""
    rows = list(enumerate(read_lines(root, file, encoding), start=1))
    if header is None:
        return rows
    begin, width = header
    if not rows or not rows[0][1].startswith(begin) or rows[0][1].count("\t") + 1 != width:
        names = begin.replace("\t", ", ")
        raise DataError(
            "the header line is missing", where=f"{root / file}:1", expected=f"{names}: {width} columns"
        )
    return rows[1:]


def labelled_files(
    task: str,
    files: dict[str, str],
    parse: Parse,
    encoding: str = "utf-8",
    header: tuple[str, int] | None = None,
) -> TaskFiles:
    """A task of labelled sentences, or pairs of sentences, an item a line.

    Args:
        task: Its name.
        files: File of each split.
        parse: From a line to its label and sentences; raises DataError.
        encoding: Of all files.
        header: How their first line begins and how many columns it has; None for files without one.
    """

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


def _parse_class(row: str, where: str, split: str) -> tuple[str, ...]:
    """An empty line of CR and MPQA is an (empty) sample, as in SentEval."""
    return "1" if split == "positive" else "0", row


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


SOURCES: dict[str, TaskFiles] = {
    **{year: _sts_files(year) for year in STS_YEARS},
    **{
        task: pair_files(task, f"STS/STSBenchmark/sts-{split}.csv", (5, 6, 4), 7)
        for task, split in (("STSB", "test"), ("STSB-dev", "dev"), ("STSB-train", "train"))
    },
    **{
        task: pair_files(task, f"SICK/SICK_{file}.txt", (1, 2, 3), 5, SICK_HEADER)
        for task, file in (("SICKR", "test_annotated"), ("SICKR-dev", "trial"), ("SICKR-train", "train"))
    },
    **{
        task: labelled_files(task, {"positive": positive, "negative": negative}, _parse_class, "latin-1")
        for task, positive, negative in (
            ("MR", "MR/rt-polarity.pos", "MR/rt-polarity.neg"),
            ("CR", "CR/custrev.pos", "CR/custrev.neg"),
            ("SUBJ", "SUBJ/subj.objective", "SUBJ/subj.subjective"),
            ("MPQA", "MPQA/mpqa.pos", "MPQA/mpqa.neg"),
        )
    },
    **{
        task: labelled_files(
            task, {split: f"SST/{kind}/sentiment-{split}" for split in ("train", "dev", "test")}, parse
        )
        for task, kind, parse in (("SST2", "binary", _parse_sst2), ("SST5", "fine", _parse_sst5))
    },
    "TREC": labelled_files(
        "TREC", {"train": "TREC/train_5500.label", "test": "TREC/TREC_10.label"}, _parse_trec, "latin-1"
    ),
    "MRPC": labelled_files(
        "MRPC",
        {split: f"MRPC/msr_paraphrase_{split}.txt" for split in ("train", "test")},
        _parse_mrpc,
        header=("Quality", 5),
    ),
}


def find_root(data: Path) -> Path:
    """Return SentEval's ``downstream`` folder at or below ``data``.

    Raises:
        DataError: no such folder; names the places that were tried.
    """
    for place in (".", "downstream", "senteval/downstream", "data/downstream", "SentEval/data/downstream"):
        folder = data / place
        if any((folder / name).is_dir() for name in ("STS", "SICK", "MR", "TREC")):
            return folder
    raise DataError(
        "no SentEval data here",
        where=str(data),
        expected="a folder STS, SICK, MR or TREC in it, or in downstream/ or senteval/downstream/ below it",
        hint="bench data fetch sts7 gets it",
    )


def iter_files(tasks: tuple[str, ...]) -> Iterator[str]:
    """Yield the files of these tasks, relative to the ``downstream`` folder."""
    for task in tasks:
        yield from SOURCES[task].files
