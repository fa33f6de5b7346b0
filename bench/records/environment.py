"""Where a number came from: versions, commit, machine, device; without any path of the machine."""

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
_CODE_OF_COPY = Path(__file__).resolve().parents[1]


@cache
def read_packing_facts() -> dict[str, Any]:
    """Return {"commit", "dirty", "backbones": {profile: folder}} in a packed copy, else nothing."""
    try:
        facts: dict[str, Any] = json.loads((_CODE_OF_COPY / FILE).read_text(encoding="utf-8"))
    except OSError:
        return {}
    return facts


def packed_backbone(profile: str) -> str | None:
    """Folder of a profile's own backbone in a packed copy, None in another."""
    folder = read_packing_facts().get("backbones", {}).get(profile)
    return str(_CODE_OF_COPY.parent / folder) if folder else None


def read_rounding(folder: Path) -> dict[str, str]:
    """What `bench pack` rounded in a model's folder, nothing in any other."""
    try:
        found: dict[str, str] = json.loads((folder / ROUNDED).read_text(encoding="utf-8"))
    except OSError:
        return {}
    return found


CHECKOUT_FOLDERS = ("baselines", "methods", "reports")
"""Packages of ``bench`` that lie next to it in a checkout."""
_CODE = ("bench", *CHECKOUT_FOLDERS, "pyproject.toml")
_ROOT = Path(__file__).resolve().parents[2]
_PACKAGES = ("torch", "transformers", "tokenizers", "safetensors", "sentence-transformers", "numpy", "scipy")


def collect_provenance(*, device: str, threads: int) -> dict[str, Any]:
    """Facts that repeat when a run is repeated on the same installation."""
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
    """What may change the digits of a training, for its stage to keep: versions, device and processor."""
    facts = collect_provenance(device=device, threads=1)
    kept = {name: facts[name] for name in ("python", "platform", "versions", "device")}
    return {**kept, "processor": _processor_name()}


def plugin_file_hashes(provenance: Mapping[str, Any]) -> dict[str, str]:
    """sha256 of the file that each method of a record came from, of those that came from one (--plugin)."""
    plugins = provenance.get("plugins")
    found = plugins.items() if isinstance(plugins, dict) else ()
    files = ((name, facts) for name, facts in found if isinstance(facts, dict) and "file" in facts)
    return {name: str(facts.get("sha256")) for name, facts in files}


def build_timing(*, started: float, wall: float, cpu: float) -> dict[str, Any]:
    """Facts that don't repeat: when, how long, on which processor (``started`` in seconds since 1970)."""
    return {
        "started": datetime.fromtimestamp(started, UTC).isoformat(timespec="seconds"),
        "wall_seconds": round(wall, 3),
        "cpu_seconds": round(cpu, 3),
        "processor": _processor_name(),
        "cores": os.cpu_count(),
    }


def clean_traceback(error: BaseException) -> tuple[str, ...]:
    """Format a traceback with file names relative to their package, so that no machine path is kept."""
    lines = "".join(traceback.format_exception(error)).rstrip("\n").split("\n")
    return tuple(strip_paths(line) for line in lines)


def strip_paths(text: str) -> str:
    """Shorten absolute paths: package files to their package, others to their last part."""
    text = re.sub(r"(?:/[^\s/'\":]+)*/(?:site-packages|lib/python3\.\d+)/", "", text)
    text = text.replace(f"{_ROOT}/", "")
    return re.sub(r"(?<![\w.:/])(?:/[^\s/'\":,;]+)+/([^\s/'\":,;]+)", r"\1", text)


@cache
def _package_version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def run_git(*arguments: str, timeout: float = 120) -> str | None:
    """Return what git says, or None where it fails."""
    try:
        done = subprocess.run(  # noqa: S603
            ["git", *arguments],  # noqa: S607
            capture_output=True,
            text=True,
            timeout=timeout,
            check=True,
        )
    except (OSError, ValueError, subprocess.SubprocessError):  # ValueError: a NUL in a name
        return None
    return done.stdout.strip()


@cache
def _git_state() -> tuple[tuple[str, Any], ...]:
    """Commit and dirty flag of the checkout that bench runs from, or was packed from; None for a wheel."""
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
    """The processor with what tells generations of one name apart, as a rented machine often says no more."""
    try:
        first = Path("/proc/cpuinfo").read_text(encoding="utf-8").partition("\n\n")[0]
    except OSError:
        first = ""
    facts = {name.strip(): value.strip() for name, _, value in (s.partition(":") for s in first.splitlines())}
    if "model name" not in facts:
        return platform.processor() or platform.machine()
    names = (("cpu family", "family"), ("model", "model"), ("stepping", "stepping"))
    which = ", ".join(f"{short} {facts[name]}" for name, short in names if name in facts)
    return f"{facts['model name']} ({which})" if which else facts["model name"]


def diff_environments(made: Mapping[str, Any], here: Mapping[str, Any]) -> dict[str, Any]:
    """What of one :func:`bench.records.environment.collect_training_environment` is otherwise in another.

    >>> made = {"python": "3.11", "versions": {"torch": "2.5", "numpy": "2.0"}}
    >>> diff_environments(made, {"python": "3.11", "versions": {"torch": "2.6", "numpy": "2.0"}})
    {'versions': {'torch': '2.5'}}
    """
    found = {name: value for name, value in made.items() if value != here.get(name)}
    if "versions" in found:
        there = here["versions"]
        found["versions"] = {name: v for name, v in made["versions"].items() if v != there.get(name)}
    return found


def provenance_reader(name: str) -> Callable[[RunRecord], Any]:
    """Return what reads a fact of the provenance that training and evaluation have each."""
    return lambda record: _join_training_values(record.provenance.get(name), _training_values(record, name))


def read_gpu(record: RunRecord) -> str:
    """The GPU, "" for none."""
    devices = (record.provenance.get("device"), *_training_values(record, "device"))
    own, *trained = (str(device).partition(" ")[2] for device in devices)
    return str(_join_training_values(own, trained))


def read_versions(record: RunRecord) -> dict[str, Any]:
    """Versions of the packages."""
    own = record.provenance.get("versions") or {}
    trained = _training_values(record, "versions")
    return {
        name: _join_training_values(own[name], [each[name] for each in trained if name in each])
        for name in own
    }


def read_cpu(record: RunRecord) -> Any:
    """The processor."""
    return _join_training_values(
        record.timing.get("processor"), record.timing.get("training_processor", {}).values()
    )


def _training_values(record: RunRecord, name: str) -> list[Any]:
    """What stages were trained with, where that isn't what evaluated them."""
    found = record.provenance.get("trained_with", {}).values()
    return [each[name] for each in found if name in each]


def _join_training_values(value: Any, trained: Iterable[Any]) -> Any:
    """What evaluated, and in brackets what trained stages where that was another."""
    others = sorted({str(each or "none") for each in trained})
    return f"{value or 'none'} (in training {' and '.join(others)})" if others else value
