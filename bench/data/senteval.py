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
    decimal,
    normalise,
)
from bench.errors import DataError

STS_YEARS = {
    "STS12": ("MSRpar", "MSRvid", "SMTeuroparl", "surprise.OnWN", "surprise.SMTnews"),
    "STS13": ("FNWN", "headlines", "OnWN"),
    "STS14": ("deft-forum", "deft-news", "headlines", "images", "OnWN", "tweet-news"),
    "STS15": ("answers-forums", "answers-students", "belief", "headlines", "images"),
    "STS16": ("answer-answer", "headlines", "plagiarism", "postediting", "question-question"),
}
_STSB = {"train": "sts-train.csv", "dev": "sts-dev.csv", "test": "sts-test.csv"}
_SICK = {"train": "SICK_train.txt", "dev": "SICK_trial.txt", "test": "SICK_test_annotated.txt"}
_SICK_HEADER = "pair_ID\tsentence_A\tsentence_B\trelatedness_score"
_MRPC_HEADER = "Quality"
_BINARY = {
    "MR": ("MR/rt-polarity.pos", "MR/rt-polarity.neg"),
    "CR": ("CR/custrev.pos", "CR/custrev.neg"),
    "SUBJ": ("SUBJ/subj.objective", "SUBJ/subj.subjective"),
    "MPQA": ("MPQA/mpqa.pos", "MPQA/mpqa.neg"),
}


@dataclass(frozen=True)
class Source:
    """Where a task's files are below the ``downstream`` folder, and how they are read."""

    files: tuple[str, ...]
    read: Callable[[Path], Task]


def lines(root: Path, file: str, encoding: str = "utf-8") -> list[str]:
    """Return a file's lines without line ends, and without a byte order mark before UTF-8.

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
            hint="bench data fetch sts7 (or transfer7) gets it",
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


def _number(text: str, where: str) -> float:
    try:
        value = decimal(text)
    except ValueError:
        value = float("nan")
    if not 0 <= value <= 5:
        raise DataError(f"'{text}' is not a gold score", where=where, expected="a number from 0 to 5")
    return value


def _columns(line: str, count: int, where: str, form: str, separator: str = "\t") -> list[str]:
    parts = line.split(separator)
    if len(parts) != count:
        raise DataError(f"{len(parts)} column(s)", where=where, expected=f"{count}: {form}")
    return parts


def _read_sts_subset(root: Path, year: str, name: str) -> PairSubset:
    folder = f"STS/{year}-en-test"
    input_file, gold_file = f"{folder}/STS.input.{name}.txt", f"{folder}/STS.gs.{name}.txt"
    pairs, golds = lines(root, input_file), lines(root, gold_file)
    if len(pairs) != len(golds):
        short, long = (input_file, gold_file) if len(pairs) < len(golds) else (gold_file, input_file)
        raise DataError(
            "the file ends here",
            where=f"{root / short}:{min(len(pairs), len(golds))}",
            expected=f"{max(len(pairs), len(golds))} lines as in {Path(long).name}",
        )
    first, second, gold = [], [], []
    for number, (pair, score) in enumerate(zip(pairs, golds, strict=True), start=1):
        if not score.strip():  # STS15 and STS16: an empty gold line means unlabelled
            continue
        where = f"{root / input_file}:{number}"
        left, right = _columns(pair, 2, where, "two sentences with a tab between")
        first.append(normalise(left))
        second.append(normalise(right))
        gold.append(_number(score, f"{root / gold_file}:{number}"))
    return PairSubset(name, tuple(first), tuple(second), tuple(gold), input_file, len(pairs))


def _sts_year(year: str) -> Source:
    names = STS_YEARS[year]
    files = tuple(f"STS/{year}-en-test/STS.{part}.{name}.txt" for name in names for part in ("input", "gs"))
    return Source(
        files, lambda root: PairTask(year, tuple(_read_sts_subset(root, year, name) for name in names))
    )


def _read_pairs(
    root: Path, task: str, split: str, file: str, columns: tuple[int, int, int], width: int, header: str
) -> PairTask:
    """Read one tab-separated file of pairs; ``columns`` are those of the sentences and the score."""
    rows = lines(root, file)
    start = 1 if header else 0
    if header:
        _check_header(rows, header, width, f"{root / file}:1")
    first, second, gold = [], [], []
    for number, row in enumerate(rows[start:], start=start + 1):
        where = f"{root / file}:{number}"
        parts = _columns(row, width, where, "tab-separated, no quoting")
        first.append(normalise(parts[columns[0]]))
        second.append(normalise(parts[columns[1]]))
        gold.append(_number(parts[columns[2]], where))
    subset = PairSubset(split, tuple(first), tuple(second), tuple(gold), file, len(rows))
    return PairTask(task, (subset,))


def _check_header(rows: list[str], header: str, width: int, where: str) -> None:
    if not rows or not rows[0].startswith(header) or rows[0].count("\t") + 1 != width:
        names = header.replace("\t", ", ")
        raise DataError("the header line is missing", where=where, expected=f"{names}: {width} columns")


def _stsb(task: str, split: str) -> Source:
    file = f"STS/STSBenchmark/{_STSB[split]}"
    return Source((file,), lambda root: _read_pairs(root, task, split, file, (5, 6, 4), 7, ""))


def _sick(task: str, split: str) -> Source:
    file = f"SICK/{_SICK[split]}"
    return Source((file,), lambda root: _read_pairs(root, task, split, file, (1, 2, 3), 5, _SICK_HEADER))


def _labelled(
    root: Path, name: str, file: str, parse: Callable[[str, str], tuple[str, str]], encoding: str
) -> LabelledSplit:
    """Read one sentence a line; ``parse`` turns (line, place) into (label, sentence)."""
    rows = lines(root, file, encoding)
    items = [parse(row, f"{root / file}:{number}") for number, row in enumerate(rows, start=1)]
    return LabelledSplit(
        name,
        tuple(normalise(text) for _, text in items),
        (),
        tuple(label for label, _ in items),
        file,
        len(rows),
    )


def _binary(task: str) -> Source:
    positive, negative = _BINARY[task]  # an empty line of CR and MPQA is an (empty) sample, as in SentEval

    def read(root: Path) -> LabelledTask:
        return LabelledTask(
            task,
            (
                _labelled(root, "positive", positive, lambda row, _: ("1", row), "latin-1"),
                _labelled(root, "negative", negative, lambda row, _: ("0", row), "latin-1"),
            ),
        )

    return Source((positive, negative), read)


def _parse_trec(row: str, where: str) -> tuple[str, str]:
    label, colon, rest = row.partition(":")
    _, blank, question = rest.partition(" ")
    if not colon or not blank:
        raise DataError("no question with its type", where=where, expected="COARSE:fine question")
    return label, question


def _parse_sst2(row: str, where: str) -> tuple[str, str]:
    sentence, label = _columns(row, 2, where, "a sentence, a tab and its label")
    return _label(label, "01", where), sentence


def _parse_sst5(row: str, where: str) -> tuple[str, str]:
    label, _, sentence = row.partition(" ")
    return _label(label, "01234", where), sentence


def _label(label: str, allowed: str, where: str) -> str:
    if len(label) != 1 or label not in allowed:
        raise DataError(f"'{label}' is not a label", where=where, expected=f"one of {', '.join(allowed)}")
    return label


def _split_task(
    task: str, files: dict[str, str], parse: Callable[[str, str], tuple[str, str]], encoding: str = "utf-8"
) -> Source:
    def read(root: Path) -> LabelledTask:
        return LabelledTask(
            task, tuple(_labelled(root, name, file, parse, encoding) for name, file in files.items())
        )

    return Source(tuple(files.values()), read)


def _read_mrpc(root: Path) -> LabelledTask:
    splits = []
    for name in ("train", "test"):
        file = f"MRPC/msr_paraphrase_{name}.txt"
        rows = lines(root, file)
        _check_header(rows, _MRPC_HEADER, 5, f"{root / file}:1")
        items = []
        for number, row in enumerate(rows[1:], start=2):
            where = f"{root / file}:{number}"
            items.append(_columns(row, 5, where, "label, two ids, two sentences; no quoting"))
            _label(items[-1][0], "01", where)
        splits.append(
            LabelledSplit(
                name,
                tuple(normalise(item[3]) for item in items),
                tuple(normalise(item[4]) for item in items),
                tuple(item[0] for item in items),
                file,
                len(rows),
            )
        )
    return LabelledTask("MRPC", tuple(splits))


def _sst_files(kind: str) -> dict[str, str]:
    return {split: f"SST/{kind}/sentiment-{split}" for split in ("train", "dev", "test")}


SOURCES: dict[str, Source] = {
    **{year: _sts_year(year) for year in STS_YEARS},
    "STSB": _stsb("STSB", "test"),
    "STSB-dev": _stsb("STSB-dev", "dev"),
    "STSB-train": _stsb("STSB-train", "train"),
    "SICKR": _sick("SICKR", "test"),
    "SICKR-dev": _sick("SICKR-dev", "dev"),
    "SICKR-train": _sick("SICKR-train", "train"),
    **{task: _binary(task) for task in _BINARY},
    "SST2": _split_task("SST2", _sst_files("binary"), _parse_sst2),
    "SST5": _split_task("SST5", _sst_files("fine"), _parse_sst5),
    "TREC": _split_task(
        "TREC", {"train": "TREC/train_5500.label", "test": "TREC/TREC_10.label"}, _parse_trec, "latin-1"
    ),
    "MRPC": Source(tuple(f"MRPC/msr_paraphrase_{name}.txt" for name in ("train", "test")), _read_mrpc),
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
