"""One folder that runs on a machine without network or pip: code, data, models and the command."""

from __future__ import annotations

import json
import shlex
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from bench.config import profiles
from bench.config.plugins import plugin_facts
from bench.data import senteval
from bench.data.data_source import data_folder
from bench.data.label_origin import label_model_file
from bench.data.lock_files import lock_file
from bench.data.mteb_names import CONTRAST_TEXT, STSB_MULTI, is_mteb
from bench.data.suites import MINI_SUITES, SUITES
from bench.data.training_data import copy_files, has_embedded_text
from bench.errors import BenchError, InputError
from bench.execution.encoder_builder import make_cell_backbones
from bench.execution.record_probes import find_probe_suite
from bench.nn.model_files import PRETRAINING, list_hashed_files
from bench.nn.model_folder import AdapterModel, ModelFolder, hash_model
from bench.plan.cell import Cell
from bench.plan.plan import Plan
from bench.records.environment import CHECKOUT_FOLDERS, FILE, ROUNDED, collect_provenance
from bench.stages import PAIRS, SICK
from bench.version import __version__

T = TypeVar("T")
HERE = "$here"  # the folder, in words of its command
DATA, MODELS, TEXTS, PLUGINS = "data", "models", "texts", "plugins"
_CODE = Path(__file__).resolve().parents[1]
_SCRIPT = """#!/bin/sh
# made by bench pack; further options of bench run may follow
here=$(cd "$(dirname "$0")" && pwd)
export PYTHONPATH="$here" PYTHONSAFEPATH=1 BENCH_DATA="$here/data" HF_HUB_OFFLINE=1
exec "${{PYTHON:-python3}}" -m bench {words} "$@"
"""


@dataclass
class Packed:
    """Outcome of packing."""

    words: list[str]  # the command after ``bench``
    models: list[str] = field(default_factory=list)  # a line for each
    bytes: int = 0
    files: int = 0


def pack_run(plan: Plan, words: Sequence[str], out: Path, *, half: bool) -> Packed:
    """Write the folder, ``half`` with weights as float16.

    Raises InputError for a full ``out``, a suite of the hub, a method that brings a model or is another
    package's, and BenchError for weights too large for float16.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise InputError("it already exists", where=f"--out {out}", expected="a new folder")
    cells = [*{id(job.cell): job.cell for job in plan.jobs}.values()]
    _check_packable(plan, cells)
    cells = [make_cell_backbones(cell) for cell in cells]
    files = [*_data_files(plan), *_text_files(plan)]
    out.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=f".{out.name}.", dir=out.parent))
    try:
        packed = _fill_folder(plan, cells, files, words, work, half)
        work.chmod(0o755)
        work.replace(out)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return packed


def _fill_folder(
    plan: Plan,
    cells: Sequence[Cell],
    files: Sequence[tuple[Path, str]],
    words: Sequence[str],
    out: Path,
    half: bool,
) -> Packed:
    packed = Packed([*words])
    ignored = shutil.ignore_patterns("__pycache__", FILE)
    shutil.copytree(_CODE, out / "bench", ignore=ignored)
    for name in CHECKOUT_FOLDERS:
        if not (out / "bench" / name).exists():
            shutil.copytree(_CODE.parent / name, out / "bench" / name, ignore=ignored)
    (out / DATA).mkdir()
    for source, target in files:
        _copy_file(source, out / target)
    backbones = _write_models(plan, cells, out, half, packed)
    for _, _, named in _command_texts(plan):
        packed.words += named
    plugins = [plugin for plugin in plan.spec.plugins if plugin.path]
    folders = _assign_folders((plugin.source for plugin in plugins), PLUGINS)
    for plugin in plugins:
        place = f"{folders[plugin.source]}/{plugin.name}"
        _write_file(out / place, plugin.source)
        packed.words += ["--plugin", f"{HERE}/{place}"] if f"{HERE}/{place}" not in packed.words else []
    facts = collect_provenance(device="cpu", threads=1)
    _write_file(out / "bench" / FILE, _encode_json({**facts["git"], "backbones": backbones}))
    metadata = f"Metadata-Version: 2.1\nName: cse-bench\nVersion: {__version__}\n"
    _write_file(out / f"cse_bench-{__version__}.dist-info" / "METADATA", metadata.encode())
    script = out / "run.sh"
    _write_file(script, _SCRIPT.format(words=" ".join(map(_quote_word, packed.words))).encode())
    script.chmod(0o755)
    _write_file(out / "README", _format_readme(packed, facts).encode())
    sizes = [path.stat().st_size for path in out.rglob("*") if path.is_file()]
    packed.bytes, packed.files = sum(sizes), len(sizes)
    return packed


def _check_packable(plan: Plan, cells: Sequence[Cell]) -> None:
    corpus = plan.spec.corpus
    if corpus is not None and corpus.is_dir():
        raise InputError("a saved data set can't be packed", where=f"--corpus {corpus}", expected="a file")
    for suite in plan.suites:
        elsewhere = suite.startswith(CONTRAST_TEXT) or (is_mteb(suite) and suite != STSB_MULTI)
        if elsewhere and suite not in MINI_SUITES:
            what = f"suite '{suite}' can't be packed: its tasks are not below the data folder"
            raise InputError(what, where="--suite")
    for cell in _iter_cells(cells):
        name = cell.card.name
        if cell.card.takes_path:
            raise InputError(f"'{cell.method}' brings a model, which can't be packed", where="--methods")
        if "module" in (plugin_facts(name) or {}):
            raise InputError(f"'{name}' is from a package, which can't be packed", where="--methods")


def _iter_cells(cells: Sequence[Cell]) -> Iterator[Cell]:
    for cell in cells:
        yield cell
        yield from _iter_cells([member for _, member in cell.members])


def _data_files(plan: Plan) -> Iterator[tuple[Path, str]]:
    """Yield the files of the suites, the dev set and probes, with their places in the folder."""
    data, spec = data_folder(plan.spec.data), plan.spec
    if data is None:
        return
    names = {*plan.suites, *([find_probe_suite(spec)] if spec.probes else [])}
    if plan.training is not None:
        names.add(spec.dev or profiles.load_profile(spec.profile).dev)
    suites = [suite for suite in map(SUITES.get, names) if not suite.embedded and not is_mteb(suite.name)]
    tasks = sorted({task for suite in suites for task in suite.reads or suite.tasks})
    if tasks:
        root = senteval.find_root(data)
        for file in dict.fromkeys(senteval.iter_files(tuple(tasks))):
            yield root / file, f"{DATA}/senteval/downstream/{file}"
    if STSB_MULTI in names:
        for path in sorted((data / "stsb_multi").iterdir()):
            yield path, f"{DATA}/stsb_multi/{path.name}"


def _text_files(plan: Plan) -> Iterator[tuple[Path, str]]:
    """Yield the training text, SICK's sentences and copies with their companion files, and their places."""
    spec, data = plan.spec, data_folder(plan.spec.data)
    if plan.training is None:
        return
    names = {stage.spec.text for job in plan.jobs for stage in job.cell.all_stages}
    for path, folder, _ in _command_texts(plan):
        yield from ((file, f"{folder}/{file.name}") for file in _companion_files(path))
    profile = profiles.load_profile(spec.profile)
    if data is None or has_embedded_text(profile):
        return
    wanted = {
        "file": spec.corpus is None and names != {PAIRS},
        "pairs": spec.pairs is None and PAIRS in names,
        "sick": any(name.endswith(SICK) for name in names),
    }
    texts = [data / profile.corpus[key] for key, want in wanted.items() if want]
    texts += [path for path in copy_files(names, spec, profile).values() if path is not None]
    for text in texts:
        yield from ((file, f"{DATA}/{file.relative_to(data)}") for file in _companion_files(text))


def _command_texts(plan: Plan) -> list[tuple[Path, str, list[str]]]:
    """Return file, packed folder (one for each folder of files) and new words of each text in the command."""
    spec = plan.spec
    copies = (("--copy", f"{name}=", path) for name, path in spec.copies)
    texts = [("--corpus", "", spec.corpus), ("--pairs", "", spec.pairs), *copies]
    given = [(option, name, path, path.parent.resolve()) for option, name, path in texts if path is not None]
    folders = _assign_folders((source for *_, source in given), TEXTS)
    return [
        (path, folders[source], [option, f"{name}{HERE}/{folders[source]}/{path.name}"])
        for option, name, path, source in given
    ]


def _assign_folders(sources: Iterable[T], folder: str) -> dict[T, str]:
    """Give each source FOLDER, FOLDER-2, ..., so that files of one name stay separate."""
    distinct = enumerate(dict.fromkeys(sources), 1)
    return {source: folder + f"-{number}" * (number > 1) for number, source in distinct}


def _companion_files(text: Path) -> Iterator[Path]:
    beside = (lock_file(text), text.with_suffix(".json"), label_model_file(text))
    yield from (path for path in (text, *beside) if path.is_file())


def _write_models(plan: Plan, cells: Sequence[Cell], out: Path, half: bool, packed: Packed) -> dict[str, str]:
    """Write the models and name them in the command; return the place of the profile's own backbone."""
    own: dict[str, str] = {}
    written: dict[str, tuple[str, str]] = {}
    for cell in _iter_cells(cells):
        models = [("", cell.model)] if cell.model else []
        for option, model in (*models, *cell.auxiliaries):
            first = model.sha256 not in written
            if first:
                written[model.sha256] = _write_model(model, out, half, packed)
            place, sha256 = written[model.sha256]
            if option and dict(cell.options).get(option) != "backbone":
                words = ["--set", f"{cell.card.name}.{option}={HERE}/{place}"]
                packed.words += words if words[1] not in packed.words else []
            elif not option and plan.spec.backbone is None and sha256 == model.sha256:
                own[plan.spec.profile] = place
            elif not option and first:
                packed.words += ["--backbone", f"{HERE}/{place}"]
    return own


def _write_model(model: ModelFolder, out: Path, half: bool, packed: Packed) -> tuple[str, str]:
    """Write a model's folder, unless it comes with the code; return its place and its hash there."""
    if isinstance(model, AdapterModel):
        what = f"{model.name} is an adapter, and a package has whole models"
        raise InputError(what, where="bench pack", hint=f"merge it: bench export hf:{model.path} --out DIR")
    if model.path.resolve().is_relative_to(_CODE):
        packed.models.append(f"in the code: {model.name}, sha256 {model.sha256}")
        return f"bench/{model.path.resolve().relative_to(_CODE).as_posix()}", model.sha256
    name = model.name.split("/")[-1]
    place = f"{MODELS}/{name}"
    if (out / place).exists():
        place = f"{MODELS}/{model.sha256[:8]}/{name}"
    files = [*list_hashed_files(model.path)]
    whole = any(path.suffix == ".safetensors" for path in files)
    for path in files:
        target = out / place / path.relative_to(model.path)
        if half and path.suffix == ".safetensors":
            _halve_weights(path, target)
        elif not (half and whole and path.suffix == ".bin"):  # the same weights
            _copy_file(path, target)
    for name in (ROUNDED, PRETRAINING):  # facts of an earlier packing, of bench pretrain
        if (model.path / name).is_file():
            _copy_file(model.path / name, out / place / name)
    sha256 = hash_model(out / place)
    line = f"{place}: {model.name}, sha256 {sha256}"
    if sha256 != model.sha256:
        facts = {"weights": "float16", "sha256": model.sha256}
        _write_file(out / place / ROUNDED, _encode_json(facts))
        line += f", its weights rounded to float16 from sha256 {model.sha256}: records name the new sha256"
    packed.models.append(line)
    return place, sha256


def _halve_weights(source: Path, target: Path) -> None:
    """Write a safetensors file with its floating-point numbers as float16."""
    import torch
    from safetensors.torch import load_file, save_file

    weights = load_file(source)
    wide = [key for key, item in weights.items() if item.is_floating_point() and item.dtype != torch.float16]
    if not wide:
        _copy_file(source, target)
        return
    for key in wide:
        weights[key] = weights[key].half()
        if not bool(weights[key].isfinite().all()):
            hint = "pack them as they are: --weights same"
            raise BenchError("weights too large for float16", where=source.name, hint=hint)
    target.parent.mkdir(parents=True, exist_ok=True)
    save_file(weights, target, metadata={"format": "pt"})


def _format_readme(packed: Packed, facts: dict[str, Any]) -> str:
    git = facts["git"]
    named = ", ".join(f"{name} {version}" for name, version in facts["versions"].items())
    changes = ", with uncommitted changes" if git["dirty"] else ""
    lines = [
        "A run of bench for a machine without network or pip, made by bench pack.",
        "",
        f"    sh run.sh    # bench {' '.join(packed.words)}",
        "",
        "$here is this folder. More options may follow, such as --device cuda --results DIR.",
        f"bench {__version__}, commit {git['commit'] or 'unknown'}{changes}; records made here say so.",
        f"Made with Python {facts['python']}, {named}; other versions may change digits.",
        *packed.models,
    ]
    return "\n".join(lines) + "\n"


def _quote_word(word: str) -> str:
    """Quote a word for the script, in which only $here is replaced."""
    return f'"{HERE}"'.join(shlex.quote(part) if part else "" for part in word.split(HERE)) or "''"


def _copy_file(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)


def _write_file(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def _encode_json(facts: object) -> bytes:
    return (json.dumps(facts, indent=1) + "\n").encode()
