"""Environment of a run: versions, commit, machine, device. Paths are stripped."""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from functools import cache, partial
from importlib import metadata
from pathlib import Path
from typing import Any

from bench.records.record import RunRecord
from bench.version import __version__

FILE = "packed.json"
ROUNDED = "rounded.json"
"""In a model's folder whose weights were rounded: {"weights": "float16", "sha256": the model's before}."""
CHECKOUT_FOLDERS = ("baselines", "methods", "reports")
"""Packages of ``bench`` that are next to it in a checkout."""
_CODE = ("bench", *CHECKOUT_FOLDERS, "pyproject.toml")
_CODE_OF_COPY = Path(__file__).resolve().parents[1]
_ROOT = _CODE_OF_COPY.parent
_PACKAGES = ("torch", "transformers", "tokenizers", "safetensors", "sentence-transformers", "numpy", "scipy")


def _read_json(file: Path) -> dict[str, Any]:
    """Read a JSON file, {} if it is missing."""
    try:
        facts: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    except OSError:
        return {}
    return facts


@cache
def read_packing_facts() -> dict[str, Any]:
    """Return {"commit", "dirty", "backbones": {profile: folder}} in a packed copy, otherwise {}."""
    return _read_json(_CODE_OF_COPY / FILE)


def packed_backbone(profile: str) -> str | None:
    """Return the folder of a profile's own backbone, if this is a packed copy."""
    folder = read_packing_facts().get("backbones", {}).get(profile)
    return str(_CODE_OF_COPY.parent / folder) if folder else None


def read_rounding(folder: Path) -> dict[str, str]:
    """Return what `bench pack` rounded in a model's folder, {} for nothing."""
    return _read_json(folder / ROUNDED)


def collect_provenance(*, device: str, threads: int) -> dict[str, Any]:
    """Return facts that repeat when a run is repeated on the same installation."""
    return {
        "bench": __version__,
        "git": dict(_git_state()),
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        "versions": {name: _package_version(name) for name in _PACKAGES},
        "device": _device_name(device),
        "threads": threads,
        "precision": "float32",
    }


def collect_training_environment(device: str) -> dict[str, Any]:
    """Return facts of a stage that may change the digits of its training."""
    facts = collect_provenance(device=device, threads=1)
    kept = {name: facts[name] for name in ("python", "platform", "versions", "device")}
    return {**kept, "processor": _processor_name()}


def plugin_file_hashes(provenance: Mapping[str, Any]) -> dict[str, str]:
    """Return the sha256 of the file of each method that came from one (--plugin)."""
    plugins = provenance.get("plugins")
    hashes = {}
    for name, facts in plugins.items() if isinstance(plugins, dict) else ():
        if isinstance(facts, dict) and "file" in facts:
            hashes[name] = str(facts.get("sha256"))
    return hashes


def plugin_identities(provenance: Mapping[str, Any]) -> dict[str, str]:
    """Return what identifies each method from a file or a session: its code's hash, or its file's.

    A class without source has the mark of its definition.
    """
    plugins = provenance.get("plugins")
    identities = {}
    for name, facts in plugins.items() if isinstance(plugins, dict) else ():
        if isinstance(facts, dict) and ("file" in facts or "session" in facts):
            identities[name] = str(facts.get("code") or facts.get("session") or facts.get("sha256"))
    return identities


def whole_file_methods(provenance: Mapping[str, Any]) -> set[str]:
    """Return the methods from files whose whole content identifies them: without a hash of their code."""
    files = plugin_file_hashes(provenance)
    return {name for name in files if not provenance["plugins"][name].get("code")}


def sourceless_classes(provenance: Mapping[str, Any]) -> dict[str, str]:
    """Return the mark of each method's class that had no source, which only its session could run."""
    plugins = provenance.get("plugins")
    marks = {}
    for name, facts in plugins.items() if isinstance(plugins, dict) else ():
        if isinstance(facts, dict) and "session" in facts:
            marks[name] = str(facts["session"])
    return marks


def build_timing(*, started: float, wall: float, cpu: float) -> dict[str, Any]:
    """Return facts that vary between runs: date, duration, processor; ``started`` in seconds since 1970."""
    return {
        "started": datetime.fromtimestamp(started, UTC).isoformat(timespec="seconds"),
        "wall_seconds": round(wall, 3),
        "cpu_seconds": round(cpu, 3),
        "processor": _processor_name(),
        "cores": os.cpu_count(),
    }


def clean_traceback(error: BaseException) -> tuple[str, ...]:
    """Format a traceback with file names relative to their package."""
    lines = "".join(traceback.format_exception(error)).rstrip("\n").split("\n")
    return tuple(strip_paths(line) for line in lines)


def strip_paths(text: str) -> str:
    """Shorten absolute paths: package files to their package, others to their last part."""
    text = re.sub(r"(?:/[^\s/'\":]+)*/(?:site-packages|lib/python3\.\d+)/", "", text)
    text = text.replace(f"{_ROOT}/", "")
    return re.sub(r"(?<![\w.:/\])}])(?:/[^\s/'\":,;]+)+/([^\s/'\":,;]+)", r"\1", text)


@cache
def _package_version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def run_git(*arguments: str, timeout: float = 120) -> str | None:
    """Return git's output, if it succeeds."""
    command = ["git", *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=True)  # noqa: S603
    except (OSError, ValueError, subprocess.SubprocessError):  # ValueError: a NUL in a name
        return None
    return done.stdout.strip()


@cache
def _git_state() -> tuple[tuple[str, Any], ...]:
    """Return commit and dirty flag of bench's checkout, or of the packed copy's; None for a wheel."""
    if facts := read_packing_facts():
        return (("commit", facts["commit"]), ("dirty", facts["dirty"]))
    if not (_ROOT / ".git").exists():
        return (("commit", None), ("dirty", None))
    here = partial(run_git, "-C", str(_ROOT), timeout=10)
    status = here("status", "--porcelain", "--untracked-files=normal", "--", *_CODE)
    return (("commit", here("rev-parse", "HEAD")), ("dirty", None if status is None else bool(status)))


def _device_name(device: str) -> str:
    torch = sys.modules.get("torch")
    if device == "cpu" or torch is None:
        return device
    if device == "mps":
        return f"{device} {torch.backends.mps.get_name()}"  # the chip, such as Apple M2
    return f"{device} {torch.cuda.get_device_name()}"


@cache
def _processor_name() -> str:
    """Return the processor with family, model and stepping: generations may share a name."""
    try:
        first = Path("/proc/cpuinfo").read_text(encoding="utf-8").partition("\n\n")[0]
    except OSError:
        first = ""
    lines = (line.partition(":") for line in first.splitlines())
    facts = {name.strip(): value.strip() for name, _, value in lines}
    if "model name" not in facts:
        return platform.processor() or platform.machine()
    names = (("cpu family", "family"), ("model", "model"), ("stepping", "stepping"))
    details = ", ".join(f"{short} {facts[name]}" for name, short in names if name in facts)
    return f"{facts['model name']} ({details})" if details else facts["model name"]


def diff_environments(made: Mapping[str, Any], here: Mapping[str, Any]) -> dict[str, Any]:
    """Return the facts of one :func:`collect_training_environment` that differ in another.

    >>> made = {"python": "3.11", "versions": {"torch": "2.5", "numpy": "2.0"}}
    >>> diff_environments(made, {"python": "3.11", "versions": {"torch": "2.6", "numpy": "2.0"}})
    {'versions': {'torch': '2.5'}}
    """
    facts = {name: value for name, value in made.items() if value != here.get(name)}
    if "versions" in facts:
        versions = made["versions"].items()
        facts["versions"] = {name: v for name, v in versions if v != here["versions"].get(name)}
    return facts


def provenance_reader(name: str) -> Callable[[RunRecord], Any]:
    """Return a reader of a provenance fact that training and evaluation both have."""
    return lambda record: _join_training_values(record.provenance.get(name), _training_values(record, name))


def read_gpu(record: RunRecord) -> str:
    """Return the GPU, "" for none."""
    devices = (record.provenance.get("device"), *_training_values(record, "device"))
    evaluated, *trained = (str(device).partition(" ")[2] for device in devices)
    return str(_join_training_values(evaluated, trained))


def read_versions(record: RunRecord) -> dict[str, Any]:
    """Return the versions of the packages."""
    versions = {}
    for name, version in (record.provenance.get("versions") or {}).items():
        trained = [values[name] for values in _training_values(record, "versions") if name in values]
        versions[name] = _join_training_values(version, trained)
    return versions


def read_cpu(record: RunRecord) -> Any:
    """Return the processor."""
    trained = record.timing.get("training_processor", {}).values()
    return _join_training_values(record.timing.get("processor"), trained)


def _training_values(record: RunRecord, name: str) -> list[Any]:
    """Return the values of stages that were trained elsewhere."""
    return [facts[name] for facts in record.provenance.get("trained_with", {}).values() if name in facts]


def _join_training_values(value: Any, trained: Iterable[Any]) -> Any:
    """Return the value of the evaluation, with other values of the training in brackets."""
    others = sorted({str(other or "none") for other in trained})
    return f"{value or 'none'} (in training {' and '.join(others)})" if others else value
