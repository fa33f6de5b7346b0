"""What the methods that train get: the training text, and the dev set on which checkpoints are selected."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from bench.config.profiles import Profile
from bench.config.spec import RunSpec
from bench.data import pins
from bench.data.corpus import Corpus, make_corpus, read_corpus
from bench.data.labelled_pairs import read_pairs
from bench.data.mini.world_text import graded_pairs, training_copy, training_pairs, training_text
from bench.data.round_trip import read_provenance
from bench.data.source import ALL_COPIES, COPIES, DEFAULT_SEED, DataSource
from bench.data.suites import MINI_SUITES, load_suite
from bench.data.tasks import PairTask
from bench.data.text_columns import OPTION
from bench.data.text_lines import number_sentences
from bench.errors import DataError, InputError
from bench.stages import PAIRS, SICK, TRAIN, copy_name, is_paired


@dataclass(frozen=True)
class TrainingData:
    """The texts, and the dev set for selecting checkpoints.

    Args:
        texts: "train", where there are any the round-trip translated copies of it ("a", "b"), and where they
            are asked for each of these with SICK's unlabelled sentences ("train+sick") and the text together
            with a copy ("train:a", "train:a+sick": the fingerprint of both, see :meth:`partners`). And
            "pairs", labelled ones, perhaps alone.
        dev: The dev set.
    """

    texts: Mapping[str, Corpus]
    dev: PairTask

    def partners(self, text: str) -> Sequence[str]:
        """Return the translation of each sentence of a paired text, its positive of pairs, else nothing."""
        return self.texts[_copy_text_name(text)].sentences if is_paired(text) else self.texts[text].partners

    def for_stage(self, text: str) -> TrainingData:
        """Return as much of it as a stage on that text needs."""
        needed = {text, _copy_text_name(text)} if is_paired(text) else {text}
        return TrainingData({name: self.texts[name] for name in sorted(needed)}, self.dev)

    def plus(self, texts: Mapping[str, Corpus]) -> TrainingData:
        """Return it with further texts."""
        return replace(self, texts={**self.texts, **texts})

    @property
    def corpus(self) -> Corpus:
        """The training text itself, or the pairs where all that trains here learns from these."""
        return self.texts[TRAIN] if TRAIN in self.texts else self.texts[PAIRS]

    def text_of(self, names: Collection[str]) -> Corpus:
        """Return what records call the training text of stages on those texts."""
        return self.texts[PAIRS] if set(names) == {PAIRS} else self.corpus

    def notes(self, names: Collection[str]) -> tuple[str, ...]:
        """What every table of what was trained on those texts must say."""
        read = {name: self.texts[name] for name in names if name == PAIRS}
        if set(names) != {PAIRS}:
            read[TRAIN] = self.corpus
        return tuple(
            pins.unpinned_note(text.name) for text in read.values() if text.source.startswith(pins.UNPINNED)
        )


def read_training_data(
    spec: RunSpec, profile: Profile, training: Sequence[str], texts: Collection[str] = (TRAIN,)
) -> TrainingData | None:
    """Read the profile's training text and dev set, or those the specification names.

    Args:
        spec: The specification.
        profile: Its profile.
        training: The methods that train.
        texts: Names of the texts that they see, as far as that is known.

    Returns:
        The data, None where no method trains.

    Raises:
        InputError: no text, one that no method needs, or a dev suite of several tasks.
        DataError: damaged data.
    """
    if not training:
        for option, given in (
            ("--corpus", spec.corpus),
            (OPTION, spec.text_column),
            ("--pairs", spec.pairs),
            ("--dev", spec.dev),
        ):
            if given is not None:
                raise InputError("no method here trains", where=f"{option} {given}")
        return None
    source = DataSource.of_run(spec)
    found = _read_texts(spec, source, profile, training[0]) if set(texts) != {PAIRS} else {}
    if not found and spec.corpus is not None:
        raise InputError("all that trains here learns from pairs", where=f"--corpus {spec.corpus}")
    if PAIRS in texts:
        found[PAIRS] = _read_labelled_pairs(spec, source, profile, training[0])
    elif spec.pairs is not None:
        raise InputError("no method here learns from pairs", where=f"--pairs {spec.pairs}")
    # after the text: where both are missing, the plan names the evaluation data for its suites as well
    dev = spec.dev or profile.dev
    where = "--dev" if spec.dev else f"dev set of profile {profile.name}"
    tasks = load_suite(dev, source, where=where)[1]
    if len(tasks) != 1:
        raise InputError(f"'{dev}' has {len(tasks)} tasks", where=where, expected="a suite of one task")
    return TrainingData(found, tasks[0])


def _read_labelled_pairs(spec: RunSpec, source: DataSource, profile: Profile, who: str) -> Corpus:
    """The labelled pairs; raises InputError where none are named, DataError for a missing or damaged file."""
    if spec.pairs is not None:
        return read_pairs(spec.pairs)
    if uses_world(profile):
        return training_pairs(source.world)
    data, named = source.folder, profile.corpus.get("pairs")
    if named is None or data is None:
        where = "" if named is None else f", or {named} below --data DIR or BENCH_DATA"
        raise InputError(f"{who} learns from labelled pairs", expected=f"--pairs FILE{where}")
    if not (data / named).exists():
        hint = f"get them with: bench data fetch nli --data {data}" if Path(named).name == pins.NLI else None
        raise DataError("the labelled pairs are missing", where=str(data / named), hint=hint)
    return read_pairs(data / named)


def _read_texts(spec: RunSpec, source: DataSource, profile: Profile, who: str) -> dict[str, Corpus]:
    """The training text and the copies of it that are at hand."""
    copies: dict[str, Corpus] = {}
    if spec.text_column is not None and spec.corpus is None:
        where = f"{OPTION} {spec.text_column}"
        raise InputError("it is of the text of --corpus", where=where, expected="--corpus FILE too")
    if spec.corpus is not None:
        corpus = read_corpus(spec.corpus, column=spec.text_column)
    elif uses_world(profile):
        corpus = training_text(source.world)
        copies = {copy: training_copy(source.world, copy) for copy in COPIES}
    else:
        corpus = profile_corpus(profile, source.folder, who, spec.dev or profile.dev)
    copies |= {name: read_copy(path, corpus, where=f"--copy {name}={path}") for name, path in spec.copies}
    return {TRAIN: corpus, **copies}


def profile_corpus(profile: Profile, data: Path | None, who: str, dev: str | None = None) -> Corpus:
    """Read the training text of a profile that has a file, without the lines that it leaves out.

    Args:
        profile: The profile.
        data: Data folder.
        who: Method or command that needs the text, for messages.
        dev: The dev suite that it needs too, for messages.

    Raises:
        InputError: no data folder.
        DataError: no such file, or a damaged one.
    """
    file = Path(profile.corpus["file"])
    hint = "docs/data.md says what bench's own texts are, and how to take another"
    if file.name == pins.WIKI1M:
        hint = f"get it with: bench data fetch wiki1m --data {data or 'data'}"
    if data is None:
        where = "--data DIR or BENCH_DATA"
        if dev:
            where = f"{file} below {where} (its dev set is suite {dev})"
        raise InputError(f"{who} needs a training text", expected=f"--corpus FILE, or {where}", hint=hint)
    if not (data / file).exists():
        raise DataError("the training text is missing", where=str(data / file), hint=hint)
    exclude = profile.corpus.get("exclude_lines")
    return read_corpus(data / file, (exclude[0], exclude[1]) if exclude else None)


def read_copy(path: Path, corpus: Corpus, *, where: str) -> Corpus:
    """Read a translated copy of a training text: line i belongs to sentence i.

    Args:
        path: The copy. Where bench data rtt left its provenance next to it, that must fit both.
        corpus: The training text.
        where: For messages.

    Raises:
        DataError: missing, another number of lines, an empty line, not UTF-8, or made from another text.
    """
    try:
        with path.open("rb") as stream:
            sentences = [sentence for _, sentence in number_sentences(stream, str(path))]
    except OSError as error:
        raise DataError(f"the copy can't be read: {error.strerror}", where=where) from error
    if len(sentences) != len(corpus.sentences):
        raise _line_count_error(len(sentences), corpus, where)
    if "" in sentences:
        raise DataError("this line of the copy is empty", where=f"{path}:{sentences.index('') + 1}")
    copy = make_corpus(path.name, sentences)
    facts = read_provenance(path)
    if facts is not None and facts["corpus"]["sha256"] != corpus.sha256:
        raise DataError(
            f"the copy was made from another text (sha256 {facts['corpus']['sha256'][:12]})",
            where=where,
            expected=f"{corpus.name}, sha256 {corpus.sha256[:12]}",
        )
    if facts is not None and facts["copy"]["sha256"] != copy.sha256:
        raise DataError(
            "the copy was changed since it was made",
            where=where,
            expected=f"sha256 {facts['copy']['sha256'][:12]}, as its provenance says",
        )
    return copy


def _line_count_error(lines: int, corpus: Corpus, where: str) -> DataError:
    """The error for a copy of another number of lines; it names the text if that has empty lines."""
    if corpus.empty and lines == len(corpus.sentences) + corpus.empty:
        counted = f"{corpus.empty:,} empty line{'s' * (corpus.empty > 1)}"
        return DataError(
            f"the training text has {counted} from here on, for which the copy has lines too",
            where=corpus.first_empty,
            expected="line i of the copy to be a translation of sentence i",
            hint=f"delete the empty lines, and the same lines of {where}",
        )
    return DataError(
        f"{lines:,} lines, but the training text {corpus.name} has {len(corpus.sentences):,} sentences",
        where=where,
        expected="line i to be a translation of sentence i",
        hint="lines that the profile leaves out, and empty lines, do not count as sentences",
    )


def add_texts(
    training: TrainingData, names: Collection[str], spec: RunSpec, profile: Profile
) -> TrainingData:
    """Add the texts that stages ask for: further copies, of the mini world or a profile's, SICK's, pairs.

    A text whose copy is not at hand stays out: its stage says so (:func:`bench.plan.job.assign_stage_keys`).

    Args:
        training: The text itself and the copies that were read.
        names: Names of all texts that are asked for.
        spec: The specification.
        profile: Its profile.

    Raises:
        InputError: SICK's sentences are asked for, and the profile has none, or no data folder.
        DataError: no such file, or a copy that doesn't fit the text.
    """
    if spec.corpus is None and uses_world(profile):
        missing = sorted({copy_name(name) for name in names} & set(ALL_COPIES) - training.texts.keys())
        world = DataSource.of_run(spec).world
        training = training.plus({copy: training_copy(world, copy) for copy in missing})
    files = {name: path for name, path in copy_files(names, spec, profile).items() if path is not None}
    training = training.plus(
        {copy: read_copy(path, training.corpus, where=str(path)) for copy, path in files.items()}
    )
    if any(name.endswith(SICK) for name in names):
        training = add_sick(training, spec, profile)
    return training.plus(
        {
            name: _combine_texts(training.texts[_base_text_name(name)], training.texts[_copy_text_name(name)])
            for name in sorted(names)
            if is_paired(name) and _copy_text_name(name) in training.texts
        }
    )


def copy_files(names: Collection[str], spec: RunSpec, profile: Profile) -> dict[str, Path | None]:
    """File of each copy that the asked texts need and the profile names, None without a data folder."""
    if spec.corpus is not None:
        return {}  # the profile's are of its own text
    named, data = profile.corpus.get("copies", {}), DataSource.of_run(spec).folder
    needed = {copy_name(name) for name in names} - {name for name, _ in spec.copies}
    return {copy: data / named[copy] if data else None for copy in sorted(needed & named.keys())}


def missing_texts(names: Collection[str], spec: RunSpec, profile: Profile) -> list[InputError]:
    """Say which of the profile's files, other than the training text, are asked for and missing.

    Args:
        names: Names of all texts that are asked for.
        spec: The specification.
        profile: Its profile.
    """
    found, data = list[InputError](), DataSource.of_run(spec).folder
    files = copy_files(names, spec, profile)
    if missing := [copy for copy, path in files.items() if path is None or not path.is_file()]:
        file = Path(profile.corpus["copies"][missing[0]])
        pivots = [_PIVOT.fullmatch(profile.corpus["copies"][copy]) for copy in missing]
        languages = [match[1] for match in pivots if match]
        codes = ",".join(_TARGETS.get(language, language) for language in languages)
        found.append(
            DataError(
                f"the round-trip translated copies {', '.join(missing)} of the training text are missing",
                where=str((data or Path("data")) / file.parent),
                expected=", ".join(Path(profile.corpus["copies"][copy]).name for copy in missing),
                hint=f"make them with: bench data rtt --pivots {codes} --profile {profile.name} "
                f"--data {data or 'data'} --out {(data or Path('data')) / file.parent}, from "
                f"{', '.join(f'opus-mt-en-{x}, opus-mt-{x}-en' for x in languages)} (hf download "
                "Helsinki-NLP/NAME)",
            )
        )
    sick = profile.corpus.get("sick")
    if sick and any(name.endswith(SICK) for name in names) and not (data and (data / sick).is_file()):
        found.append(
            DataError(
                "SICK's unlabelled sentences are missing",
                where=str((data or Path("data")) / sick),
                expected=("" if data else "--data DIR or BENCH_DATA with ")
                + "the sentences of SICK's training split, each once (docs/reproduce.md)",
            )
        )
    return found


_PIVOT = re.compile(r".*\.en-([A-Za-z_]+)-en\.txt")
_TARGETS = {"zh": "zh:cmn_Hans"}
"""Pivots whose model translates into several languages."""


def _combine_texts(text: Corpus, copy: Corpus) -> Corpus:
    """The text's sentences under a fingerprint of both."""
    joint = make_corpus(f"{text.name} with {copy.name}", (text.sha256, copy.sha256), text.world)
    return replace(joint, sentences=text.sentences)


def _copy_text_name(name: str) -> str:
    return copy_name(name) + (SICK if name.endswith(SICK) else "")


def _base_text_name(name: str) -> str:
    return TRAIN + (SICK if name.endswith(SICK) else "")


def add_sick(training: TrainingData, spec: RunSpec, profile: Profile) -> TrainingData:
    """Add to every text its form with SICK's unlabelled sentences at the end, as TNCSE and JTCSE train.

    In the mini world the sentences of its test pairs take their place: like SICK's, they are those of the
    test set, without the scores. The copies do not translate them.

    Raises:
        InputError: the profile has none, or no data folder.
        DataError: no such file.
    """
    source = DataSource.of_run(spec)
    if uses_world(profile):
        sentences = [s for pair in graded_pairs(source.world, "test").all_pairs() for s in pair]
        more = make_corpus("test sentences of the mini world", list(dict.fromkeys(sentences)))
    else:
        data, file = source.folder, profile.corpus.get("sick")
        if data is None or file is None:
            raise InputError(
                "SICK's unlabelled sentences are asked for",
                where=f"profile {profile.name}",
                expected="--data DIR or BENCH_DATA" if file else "a profile that names them",
            )
        more = read_corpus(data / file)
    return training.plus(
        {
            name + SICK: make_corpus(
                f"{text.name} + {more.name}", (*text.sentences, *more.sentences), text.world
            )
            for name, text in training.texts.items()
            if name != PAIRS
        }
    )


def uses_world(profile: Profile) -> bool:
    """True if the profile's training text comes from the mini world."""
    return "world" in profile.corpus


def check_world_seed(spec: RunSpec, profile: Profile, suites: Sequence[str]) -> None:
    """Raise InputError where the mini world's seed is given and nothing here is of that world."""
    if spec.world_seed is None:
        return
    if not uses_world(profile) and not MINI_SUITES & {spec.dev, *suites}:
        raise InputError("nothing here comes from the mini world", where=f"--world-seed {spec.world_seed}")
    if uses_world(profile) and spec.backbone is None and spec.world_seed != DEFAULT_SEED:
        raise InputError(
            f"the backbone of profile '{profile.name}' was pretrained on world seed {DEFAULT_SEED}",
            where=f"--world-seed {spec.world_seed}",
            hint=f"bench pretrain --world-seed {spec.world_seed} --out DIR, then --backbone DIR",
        )
