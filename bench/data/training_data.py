"""Training texts, and the dev set on which checkpoints are selected."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from bench.config.profiles import Profile
from bench.config.run_spec import RunSpec
from bench.data import lock_files
from bench.data.cased.texts import make_training_text
from bench.data.corpus import Corpus, make_corpus, read_corpus
from bench.data.data_source import ALL_COPIES, COPIES, DEFAULT_SEED, DataSource
from bench.data.labelled_pairs import read_pairs
from bench.data.mini.world_text import graded_pairs, training_copy, training_pairs, training_text
from bench.data.round_trip_translation import read_provenance
from bench.data.suites import MINI_SUITES, load_suite
from bench.data.tasks import PairTask
from bench.data.text_columns import OPTION
from bench.data.text_lines import number_sentences
from bench.errors import DataError, InputError
from bench.stages import PAIRS, SICK, TRAIN, copy_name, is_paired


@dataclass(frozen=True)
class TrainingData:
    """The texts, and the dev set for selecting checkpoints.

    ``texts`` holds "train" and its round-trip translated copies ("a", "b"); on request each of these with
    SICK's unlabelled sentences ("train+sick"), the text together with a copy ("train:a", "train:a+sick": the
    fingerprint of both, see :meth:`partners`); and "pairs", labelled ones, perhaps only these.
    """

    texts: Mapping[str, Corpus]
    dev: PairTask

    def partners(self, text: str) -> Sequence[str]:
        """Return each sentence's translation for a paired text, or its positive for pairs."""
        return self.texts[_copy_text_name(text)].sentences if is_paired(text) else self.texts[text].partners

    def for_stage(self, text: str) -> TrainingData:
        """Return the part that a stage on that text needs."""
        needed = {text, _copy_text_name(text)} if is_paired(text) else {text}
        return TrainingData({name: self.texts[name] for name in sorted(needed)}, self.dev)

    def plus(self, texts: Mapping[str, Corpus]) -> TrainingData:
        """Return the data with further texts."""
        return replace(self, texts={**self.texts, **texts})

    @property
    def corpus(self) -> Corpus:
        """The training text itself, otherwise the pairs."""
        return self.texts[TRAIN] if TRAIN in self.texts else self.texts[PAIRS]

    def text_of(self, names: Collection[str]) -> Corpus:
        """Return the training text that records name for stages on those texts."""
        return self.texts[PAIRS] if set(names) == {PAIRS} else self.corpus

    def notes(self, names: Collection[str]) -> tuple[str, ...]:
        """Return the notes for every table of runs on those texts."""
        texts = [self.texts[PAIRS]] if PAIRS in names else []
        texts += [self.corpus] if set(names) != {PAIRS} else []
        return tuple(
            lock_files.unpinned_note(t.name) for t in texts if t.source.startswith(lock_files.UNPINNED)
        )


def read_training_data(
    spec: RunSpec, profile: Profile, training: Sequence[str], texts: Collection[str] = (TRAIN,)
) -> TrainingData | None:
    """Read the profile's training text and dev set, or those of the specification; if any method trains.

    ``training`` are the methods that train, ``texts`` the names of the texts that they see, as far as known.
    Raises InputError for a missing text, one that no training method reads, or a dev suite of several tasks;
    DataError for damage.
    """
    if spec.text_column is not None and spec.corpus is None:
        where = f"{OPTION} {spec.text_column}"
        raise InputError("it names a column of --corpus", where=where, expected="--corpus FILE too")
    if not training:
        return None
    source = DataSource.of_run(spec)
    read = _read_texts(spec, source, profile, training[0]) if set(texts) != {PAIRS} else {}
    if not read and spec.corpus is not None:
        raise InputError("all methods here learn from pairs", where=f"--corpus {spec.corpus}")
    if PAIRS in texts:
        read[PAIRS] = _read_labelled_pairs(spec, source, profile, training[0])
    elif spec.pairs is not None:
        raise InputError("no method here learns from pairs", where=f"--pairs {spec.pairs}")
    # after the text: the plan names missing evaluation data for its suites as well
    dev = spec.dev or profile.dev
    where = "--dev" if spec.dev else f"dev set of profile {profile.name}"
    tasks = load_suite(dev, source, where=where)[1]
    if len(tasks) != 1:
        raise InputError(f"'{dev}' has {len(tasks)} tasks", where=where, expected="a suite of one task")
    return TrainingData(read, tasks[0])


def _read_labelled_pairs(spec: RunSpec, source: DataSource, profile: Profile, who: str) -> Corpus:
    """Read the labelled pairs; raises InputError if unnamed, DataError for a bad file."""
    if spec.pairs is None and uses_world(profile):
        return training_pairs(source.world)
    return read_pairs(_find_labelled_pairs(spec, profile, f"{who} learns from labelled pairs"))


def _find_labelled_pairs(spec: RunSpec, profile: Profile, what: str) -> Path:
    """Return the file of labelled pairs; raises InputError with ``what`` if unnamed, DataError if missing."""
    if spec.pairs is not None:
        return spec.pairs
    data, named = DataSource.of_run(spec).folder, profile.corpus.get("pairs")
    if named is None or data is None:
        where = "" if named is None else f", or {named} below --data DIR or BENCH_DATA"
        raise InputError(what, expected=f"--pairs FILE{where}", hint=_fetch_pairs(named, data))
    if not (data / named).exists():
        what = "the labelled pairs are missing"
        raise DataError(what, where=str(data / named), hint=_fetch_pairs(named, data))
    return Path(data / named)


def _fetch_pairs(named: str | None, data: Path | None) -> str | None:
    """Return the hint that fetches the pairs, if bench knows them."""
    known = named is not None and Path(named).name == lock_files.NLI
    return f"get them with: bench data fetch nli --data {data or 'data'}" if known else None


def _read_texts(spec: RunSpec, source: DataSource, profile: Profile, who: str) -> dict[str, Corpus]:
    """Read the training text and its available copies."""
    copies: dict[str, Corpus] = {}
    if spec.corpus is not None:
        corpus = read_corpus(spec.corpus, column=spec.text_column)
    elif uses_world(profile):
        corpus = training_text(source.world)
        copies = {copy: training_copy(source.world, copy) for copy in COPIES}
    elif has_embedded_text(profile):
        corpus = make_training_text()
    else:
        corpus = profile_corpus(profile, source.folder, who, spec.dev or profile.dev)
    copies |= {name: read_copy(path, corpus, where=f"--copy {name}={path}") for name, path in spec.copies}
    return {TRAIN: corpus, **copies}


def profile_corpus(profile: Profile, data: Path | None, who: str, dev: str | None = None) -> Corpus:
    """Read the text of a profile that names a file; errors name ``who`` needs it, and its ``dev`` suite."""
    file = Path(profile.corpus["file"])
    hint = "docs/data.md says what bench's own texts are, and how to take another"
    if file.name == lock_files.WIKI1M:
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
    """Read a translated copy, line by line, which must fit its provenance and the text; raises DataError."""
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
    if facts is None:
        return copy
    if facts["corpus"]["sha256"] != corpus.sha256:
        what = f"the copy was made from another text (sha256 {facts['corpus']['sha256'][:12]})"
        raise DataError(what, where=where, expected=f"{corpus.name}, sha256 {corpus.sha256[:12]}")
    if facts["copy"]["sha256"] != copy.sha256:
        expected = f"sha256 {facts['copy']['sha256'][:12]}, as its provenance says"
        raise DataError("the copy was changed since it was made", where=where, expected=expected)
    return copy


def _line_count_error(lines: int, corpus: Corpus, where: str) -> DataError:
    """Return the error for a copy of another number of lines; names the text if that has empty lines."""
    count = len(corpus.sentences)
    if corpus.empty and lines == count + corpus.empty:
        empty = f"{corpus.empty:,} empty line{'s' * (corpus.empty > 1)}"
        what = f"the training text has {empty} from here on, for which the copy has lines too"
        expected = "line i of the copy to be a translation of sentence i"
        hint = f"delete the empty lines, and the same lines of {where}"
        return DataError(what, where=corpus.first_empty, expected=expected, hint=hint)
    what = f"{lines:,} lines, but the training text {corpus.name} has {count:,} sentences"
    expected = "line i to be a translation of sentence i"
    hint = "excluded lines of the profile and empty lines do not count as sentences"
    return DataError(what, where=where, expected=expected, hint=hint)


def add_texts(
    training: TrainingData, names: Collection[str], spec: RunSpec, profile: Profile
) -> TrainingData:
    """Add the requested texts whose files are there: copies, SICK's sentences; see read_training_data."""
    if spec.corpus is None and uses_world(profile):
        missing = sorted({copy_name(name) for name in names} & set(ALL_COPIES) - training.texts.keys())
        world = DataSource.of_run(spec).world
        training = training.plus({copy: training_copy(world, copy) for copy in missing})
    for name, path in copy_files(names, spec, profile).items():
        if path is not None:
            training = training.plus({name: read_copy(path, training.corpus, where=str(path))})
    if any(name.endswith(SICK) for name in names):
        training = _add_sick(training, spec, profile)
    joint = {}
    for name in sorted(filter(is_paired, names)):
        if (copy := training.texts.get(_copy_text_name(name))) is not None:
            text = training.texts[TRAIN + (SICK if name.endswith(SICK) else "")]
            both = make_corpus(f"{text.name} with {copy.name}", (text.sha256, copy.sha256), text.world)
            joint[name] = replace(both, sentences=text.sentences)  # under a fingerprint of both
    return training.plus(joint)


def copy_files(names: Collection[str], spec: RunSpec, profile: Profile) -> dict[str, Path | None]:
    """Return the file of each requested copy of the profile's text, or None if data are missing."""
    if spec.corpus is not None:
        return {}
    named, data = profile.corpus.get("copies", {}), DataSource.of_run(spec).folder
    needed = set(map(copy_name, names)) & named.keys() - dict(spec.copies).keys()
    return {copy: data / named[copy] if data else None for copy in sorted(needed)}


def missing_texts(names: Collection[str], spec: RunSpec, profile: Profile) -> list[InputError]:
    """Return an error for each requested file of the profile that is missing, except the training text."""
    errors, data = list[InputError](), DataSource.of_run(spec).folder
    files = copy_files(names, spec, profile)
    folder = data or Path("data")
    if missing := [copy for copy, path in files.items() if path is None or not path.is_file()]:
        copies = [Path(profile.corpus["copies"][copy]) for copy in missing]
        pivots = [_PIVOT.fullmatch(copy.name) for copy in copies]
        languages = [match[1] for match in pivots if match]
        codes = ",".join(_TARGETS.get(language, language) for language in languages)
        models = ", ".join(f"opus-mt-en-{code}, opus-mt-{code}-en" for code in languages)
        target = folder / copies[0].parent
        what = f"the round-trip translated copies {', '.join(missing)} of the training text are missing"
        command = f"bench data rtt --pivots {codes} --profile {profile.name} --data {folder} --out {target}"
        hint = f"make them with: {command}, from {models} (hf download Helsinki-NLP/NAME)"
        expected = ", ".join(copy.name for copy in copies)
        errors.append(DataError(what, where=str(target), expected=expected, hint=hint))
    sick = profile.corpus.get("sick")
    if sick and any(name.endswith(SICK) for name in names) and not (data and (data / sick).is_file()):
        expected = "the sentences of SICK's training split, each once (docs/reproduce.md)"
        expected = expected if data else f"--data DIR or BENCH_DATA with {expected}"
        what = "SICK's unlabelled sentences are missing"
        errors.append(DataError(what, where=str(folder / sick), expected=expected))
    return errors


def find_missing_texts(names: Collection[str], spec: RunSpec, profile: Profile) -> list[InputError]:
    """Return an error for each requested text that is missing, except the training text itself."""
    if uses_world(profile) and spec.corpus is None:
        return []
    errors = missing_texts(names, spec, profile)
    if PAIRS in names and not uses_world(profile):
        try:
            _find_labelled_pairs(spec, profile, "the labelled pairs are missing")
        except InputError as error:
            errors.append(error)
    known = dict(spec.copies).keys() | copy_files(names, spec, profile).keys()
    if copies := sorted(set(map(copy_name, names)) - {"", *known}):
        copy = "copies" if len(copies) > 1 else "copy"
        what = f"no round-trip translated {copy} {', '.join(copies)} of the training text"
        errors.append(InputError(what, hint=_translate_copies(copies, spec, profile)))
    if any(name.endswith(SICK) for name in names) and not (uses_world(profile) or "sick" in profile.corpus):
        what = f"profile '{profile.name}' has no unlabelled sentences of SICK"
        errors.append(InputError(what, expected="a profile that names them, such as bert-base"))
    return errors


def _translate_copies(copies: Sequence[str], spec: RunSpec, profile: Profile) -> str:
    """Return the commands that make copies of a text and name them, or the option without them."""
    if spec.corpus is None and "file" not in profile.corpus:
        return "give --copy NAME=FILE, or train on the text itself with --set METHOD.rtt=none"
    pivots = [_PIVOT_OF_COPY[copy] for copy in copies]
    codes = ",".join(_TARGETS.get(pivot, pivot) for pivot in pivots)
    text = (
        f"--corpus {shlex.quote(str(spec.corpus))}"
        if spec.corpus is not None
        else f"--profile {profile.name}"
    )
    stem = (spec.corpus or Path(profile.corpus["file"])).stem
    names = " ".join(
        f"--copy {copy}=copies/{stem}.en-{pivot}-en.txt" for copy, pivot in zip(copies, pivots, strict=True)
    )
    command = f"bench data rtt --pivots {codes} {text} --out copies"
    return f"make them with: {command}, then add: {names}; or train without: --set METHOD.rtt=none"


_PIVOT = re.compile(r".*\.en-([A-Za-z_]+)-en\.txt")
_TARGETS = {"zh": "zh:cmn_Hans"}  # pivots with a model for several languages
_PIVOT_OF_COPY = dict(zip(ALL_COPIES, ("fr", "ru", "nl", "zh", "de", "es"), strict=True))  # as in bert-base


def _copy_text_name(name: str) -> str:
    return copy_name(name) + (SICK if name.endswith(SICK) else "")


def _add_sick(training: TrainingData, spec: RunSpec, profile: Profile) -> TrainingData:
    """Add to every text its form with SICK's unlabelled sentences at the end, as TNCSE and JTCSE train.

    In the mini world those of its test pairs take their place. Raises InputError and DataError.
    """
    source = DataSource.of_run(spec)
    if uses_world(profile):
        sentences = [s for pair in graded_pairs(source.world, "test").all_pairs() for s in pair]
        added = make_corpus("test sentences of the mini world", list(dict.fromkeys(sentences)))
    else:
        data, file = source.folder, profile.corpus.get("sick")
        if data is None or file is None:
            expected = "--data DIR or BENCH_DATA" if file else "a profile that names them"
            what = "SICK's unlabelled sentences are requested"
            raise InputError(what, where=f"profile {profile.name}", expected=expected)
        added = read_corpus(data / file)
    texts = {}
    for name, text in training.texts.items():
        if name != PAIRS:
            sentences = [*text.sentences, *added.sentences]
            texts[name + SICK] = make_corpus(f"{text.name} + {added.name}", sentences, text.world)
    return training.plus(texts)


def uses_world(profile: Profile) -> bool:
    """Check whether the profile's training text comes from the mini world."""
    return "world" in profile.corpus


def has_embedded_text(profile: Profile) -> bool:
    """Check whether the program holds the profile's training text, so that no file is needed."""
    return "file" not in profile.corpus


def check_world_seed(spec: RunSpec, profile: Profile, suites: Sequence[str]) -> None:
    """Raise InputError for an unused seed of the mini world."""
    if spec.world_seed is None:
        return
    if not uses_world(profile) and not MINI_SUITES & {spec.dev, *suites}:
        raise InputError("nothing here comes from the mini world", where=f"--world-seed {spec.world_seed}")
    if uses_world(profile) and spec.backbone is None and spec.world_seed != DEFAULT_SEED:
        what = f"the backbone of profile '{profile.name}' was pretrained on world seed {DEFAULT_SEED}"
        hint = f"bench pretrain --world-seed {spec.world_seed} --out DIR, then --backbone DIR"
        raise InputError(what, where=f"--world-seed {spec.world_seed}", hint=hint)
