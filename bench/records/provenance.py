"""Where a number came from: versions, commit and machine, without any path of the machine."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
import traceback
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache, partial
from importlib import metadata
from pathlib import Path
from typing import Any

from bench.records.packed import packed
from bench.version import __version__

CHECKOUT_FOLDERS = ("baselines", "methods", "reports")
"""Packages of ``bench`` that lie next to it in a checkout."""
_CODE = ("bench", *CHECKOUT_FOLDERS, "pyproject.toml")
_ROOT = Path(__file__).resolve().parents[2]
_PACKAGES = (
    "torch",
    "transformers",
    "tokenizers",
    "safetensors",
    "sentence-transformers",
    "numpy",
    "scipy",
)


def provenance(*, device: str, threads: int) -> dict[str, Any]:
    """Facts that repeat when a run is repeated on the same installation."""
    return {
        "bench": __version__,
        "git": dict(_git()),
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        "versions": {name: _version(name) for name in _PACKAGES},
        "device": _device_name(device),
        "threads": threads,
        "precision": "float32",
    }


def made_with(device: str) -> dict[str, Any]:
    """What may change the digits of a training, for its stage to keep: versions, device and processor."""
    facts = provenance(device=device, threads=1)
    kept = {name: facts[name] for name in ("python", "platform", "versions", "device")}
    return {**kept, "processor": _processor()}


def plugin_files(provenance: Mapping[str, Any]) -> dict[str, str]:
    """sha256 of the file that each method of a record came from, of those that came from one (--plugin)."""
    plugins = provenance.get("plugins")
    found = plugins.items() if isinstance(plugins, dict) else ()
    files = ((name, facts) for name, facts in found if isinstance(facts, dict) and "file" in facts)
    return {name: str(facts.get("sha256")) for name, facts in files}


def timing(*, started: float, wall: float, cpu: float) -> dict[str, Any]:
    """Facts that don't repeat: when, how long, on which processor (``started`` in seconds since 1970)."""
    return {
        "started": datetime.fromtimestamp(started, UTC).isoformat(timespec="seconds"),
        "wall_seconds": round(wall, 3),
        "cpu_seconds": round(cpu, 3),
        "processor": _processor(),
        "cores": os.cpu_count(),
    }


def clean_traceback(error: BaseException) -> tuple[str, ...]:
    """Format a traceback with file names relative to their package, so that no machine path is kept."""
    lines = "".join(traceback.format_exception(error)).rstrip("\n").split("\n")
    return tuple(without_paths(line) for line in lines)


def without_paths(text: str) -> str:
    """Shorten absolute paths: package files to their package, others to their last part."""
    text = re.sub(r"(?:/[^\s/'\":]+)*/(?:site-packages|lib/python3\.\d+)/", "", text)
    text = text.replace(f"{_ROOT}/", "")
    return re.sub(r"(?<![\w.:/])(?:/[^\s/'\":,;]+)+/([^\s/'\":,;]+)", r"\1", text)


@cache
def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def git(*arguments: str, timeout: float = 120) -> str | None:
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
def _git() -> tuple[tuple[str, Any], ...]:
    """Commit and dirty flag of the checkout that bench runs from, or was packed from; None for a wheel."""
    if facts := packed():
        return (("commit", facts["commit"]), ("dirty", facts["dirty"]))
    if not (_ROOT / ".git").exists():
        return (("commit", None), ("dirty", None))
    here = partial(git, "-C", str(_ROOT), timeout=10)
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
def _processor() -> str:
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
