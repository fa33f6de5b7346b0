"""``bench data rtt``: round-trip translated copies of a training text, with OPUS-MT."""

from __future__ import annotations

import re
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bench.cli import completion
from bench.cli.commands import bench_command
from bench.cli.options import PATH, check_device, data_option, device_options, text_column_option
from bench.cli.strict_options import strict_option
from bench.cli.terminal import progress_bar
from bench.errors import InputError

if TYPE_CHECKING:
    from bench.data.corpus import Corpus
    from bench.data.round_trip_translation import RoundTrip, Translator
    from bench.nn.marian import TranslationModel

_PIVOT = re.compile(r"([A-Za-z]+(?:_[A-Za-z]+)*)(?::([A-Za-z]+(?:_[A-Za-z]+)*))?")
_CHUNK = {"cpu": 1024, "cuda": 16_384, "mps": 4096}  # sentences: minutes of work


@bench_command()
@strict_option(
    "--pivots", required=True, help="Languages, such as fr,ru; zh:cmn_Hans for a model with several targets."
)
@strict_option("--corpus", type=PATH, help="Training text: lines, or a table's column.")
@text_column_option
@strict_option("--profile", shell_complete=completion.profile, help="Or the training text of this profile.")
@data_option("For --profile; default BENCH_DATA.")
@strict_option("--out", type=PATH, required=True, help="Folder of the copies.")
@strict_option("--models", type=PATH, help="Folder with opus-mt-en-X; default: the hub's cache.")
@strict_option("--beams", type=click.IntRange(1, 16), default=1, help="Beam size; 1 is greedy.")
@strict_option("--batch-tokens", type=click.IntRange(1), help="Padded source tokens a batch.")
@device_options()
def rtt_command(pivots: str, out: Path, models: Path | None, **options: Any) -> None:
    """Translate a training text to other languages and back.

    The copies are for `bench run --copy`. Writes NAME.en-X-en.txt, line i for sentence i, and its provenance
    NAME.en-X-en.json. After an interruption the same command resumes from the last finished part.
    """
    from bench.nn.device import torch_threads
    from bench.nn.marian import BATCH_TOKENS, check_sentencepiece, find_translation_model

    codes = _parse_pivots(pivots)
    text = _read_training_text(*(options[name] for name in ("corpus", "text_column", "profile", "data_dir")))
    check_device(options["device"])
    check_sentencepiece()
    options["batch_tokens"] = options["batch_tokens"] or BATCH_TOKENS[options["device"]]
    trips = []
    for pivot, code in codes.items():
        pair = find_translation_model("en", pivot, models), find_translation_model(pivot, "en", models)
        trips.append((_make_trip(text, pivot, code, out, pair, options), pair))
    for trip, _ in trips:
        trip.finished()  # raises for a file that must not be replaced, before any translation
    with torch_threads(options["threads"], needs_torch=True):
        for trip, pair in trips:
            _print_copy(trip, _make_copy(trip, pair, options))


def _make_copy(
    trip: RoundTrip, models: tuple[TranslationModel, TranslationModel], options: dict[str, Any]
) -> dict[str, Any]:
    from bench.nn.marian import MarianTranslator

    if (facts := trip.finished()) is not None:
        click.echo(f"{trip.text}: is there already", err=True)
        return facts
    for folder in trip.abandoned():
        click.echo(f"{folder}: parts made otherwise (models, text, settings or versions), not used", err=True)
    total, pending = len(trip.corpus.sentences), trip.pending()
    if pending < total:
        click.echo(f"{trip.text.name}: {total - pending:,} of {total:,} sentences are done already", err=True)

    def load() -> tuple[Translator, Translator]:
        common = {name: options[name] for name in ("beams", "batch_tokens", "device")}
        there, back = models
        return MarianTranslator(there, code=trip.settings["code"], **common), MarianTranslator(back, **common)

    with progress_bar(trip.text.name, 2 * pending) as advance:
        return trip.run(load, advance)


def _print_copy(trip: RoundTrip, facts: dict[str, Any]) -> None:
    copy = facts["copy"]
    click.echo(
        f"{trip.text}: {copy['lines']:,} lines, sha256 {copy['sha256'][:12]}, {facts['seconds']:.0f} s"
    )
    for name, meaning in (
        ("empty", "sentences have an empty translation: the sentence itself is used"),
        ("truncated_there", f"sentences are too long for the model to {trip.pivot}, and were cut"),
        ("truncated_back", "translations are too long for the model back, and were cut"),
        ("unfinished_there", f"translations to {trip.pivot} did not end, and were cut"),
        ("unfinished_back", "translations back did not end, and were cut"),
    ):
        if copy[name]:
            click.echo(f"{trip.text.name}: {copy[name]:,} of {copy['lines']:,} {meaning}", err=True)


def _make_trip(
    corpus: Corpus,
    pivot: str,
    code: str | None,
    out: Path,
    models: tuple[TranslationModel, TranslationModel],
    options: dict[str, Any],
) -> RoundTrip:
    from bench.data.round_trip_translation import RoundTrip
    from bench.records.environment import collect_provenance

    facts = collect_provenance(device=options["device"], threads=options["threads"])
    settings = {name: options[name] for name in ("beams", "batch_tokens", "threads")}
    settings["decoding"] = "greedy" if settings["beams"] == 1 else "beam search, early stopping"
    settings |= {"code": code, "device": facts["device"], "precision": facts["precision"]}
    versions = {name: facts[name] for name in ("bench", "python")}
    versions |= {name: facts["versions"][name] for name in ("torch", "transformers")}
    versions["sentencepiece"] = metadata.version("sentencepiece")
    chunk = _CHUNK[options["device"]]
    return RoundTrip(corpus, pivot, out, [model.facts for model in models], settings, versions, chunk)


def _parse_pivots(text: str) -> dict[str, str | None]:
    """Map each pivot to the optional code of its target language."""
    pivots: dict[str, str | None] = {}
    for part in text.split(","):
        match = _PIVOT.fullmatch(part.strip())
        if match is None or match[1] == "en" or match[1] in pivots:
            expected = "language codes as in opus-mt-en-X, each once, such as fr,ru or nl,zh:cmn_Hans"
            what = f"'{part.strip()}' in '{text}' is not a pivot"
            raise InputError(what, where="--pivots", expected=expected)
        pivots[match[1]] = match[2]
    return pivots


def _read_training_text(
    path: Path | None, column: str | None, profile: str | None, data_dir: Path | None
) -> Corpus:
    from bench.config import profiles
    from bench.data.corpus import read_corpus
    from bench.data.data_source import data_folder
    from bench.data.training_data import has_embedded_text, profile_corpus, uses_world

    if (path is None) == (profile is None):
        expected = "--corpus FILE or --profile NAME"
        raise InputError("no training text, or two", where="bench data rtt", expected=expected)
    if path is not None:
        return read_corpus(path, column=column)
    if column is not None:
        raise InputError("it is of the text of --corpus", where=f"--text-column {column}")
    chosen = profiles.load_profile(profile or "")
    if uses_world(chosen):
        what = f"profile '{chosen.name}' comes with copies of its text"
        raise InputError(what, where="--profile", hint="bench run uses them as they are")
    if has_embedded_text(chosen):
        what = f"the text of profile '{chosen.name}' comes with the program"
        raise InputError(what, where="--profile", expected="a profile that names a file, or --corpus FILE")
    return profile_corpus(chosen, data_folder(data_dir), "bench data rtt")
