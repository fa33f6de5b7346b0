"""A plain model folder in place of an adapter: its base's weights with its tokenizer and modules.

transformers would follow ``adapter_config.json`` to another model itself. So loaders and checks get the
folder of :func:`open_plain_folder`, and the caller adds the adapter to the loaded model.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.errors import InputError
from bench.nn.adapter_files import Adapter, check_fit, read_adapter
from bench.nn.adapter_folder import BASE, AdapterBase, find_base, is_adapter, list_adapters
from bench.nn.folder_checks import list_weight_files
from bench.nn.lora_settings import CONFIG, WEIGHTS
from bench.nn.untrusted_folder import read_model_type, read_settings

_NOT_TOKENIZER = {
    *("config.json", "modules.json", "config_sentence_transformers.json", "sentence_bert_config.json"),
    *("bench.json", "generation_config.json"),
}
_TOKENIZER = ("*.json", "vocab.txt", "merges.txt", "*.model", "bpe.codes", "dict.txt", "*.spm", "*.jinja")
_BOOKKEEPING = {"_name_or_path", "architectures", "dtype", "torch_dtype", "transformers_version", "use_cache"}
"""Settings of config.json that may differ between an adapter's folder and its base."""


def check_adapters(folder: Path) -> None:
    """Raise InputError for adapters of a model folder that can't be read, or don't fit their base."""
    for place in list_adapters(folder):
        adapter = read_adapter(place)
        base = find_base(place)
        _check_config(adapter, base)
        check_fit(adapter, base.path, read_model_type(base.path))


def adapter_facts(folder: Path) -> dict[str, str | int]:
    """Return a record's fact on the adapters of a model folder; {} for a folder without adapters."""
    adapters = [read_adapter(place).describe() for place in list_adapters(folder)]
    return {"adapter": "+".join(adapters)} if adapters else {}


@contextmanager
def open_plain_folder(folder: Path) -> Iterator[Path]:
    """Yield a folder whose adapters are replaced by their base models; links, in place of copies.

    A folder without adapters is yielded itself. The caller adds the adapters to the loaded model.
    """
    adapters = list_adapters(folder)
    if not adapters:
        yield folder
        return
    check_adapters(folder)
    with tempfile.TemporaryDirectory(prefix="bench-") as scratch:
        plain = Path(scratch) / (folder.name or folder.resolve().name)
        plain.mkdir()
        if len(adapters) > 1 or not is_adapter(folder) or (folder / "modules.json").is_file():
            _link_tree(folder, plain)
        else:
            _link_files(folder, plain)
        for place in adapters:
            target = plain / place.relative_to(folder)
            _replace_adapter(place, find_base(place), target)
        yield plain


def _check_config(adapter: Adapter, base: AdapterBase) -> None:
    """Refuse a config.json next to an adapter that describes another model than the base."""
    own = adapter.folder / "config.json"
    if not own.is_file():
        return
    settings, others = read_settings(own), read_settings(base.path / "config.json")
    for name in settings.keys() & others.keys() - _BOOKKEEPING:
        if settings[name] != others[name]:
            what = (
                f"{name} is {str(settings[name])[:100]!r} there, and {str(others[name])[:100]!r} in the base "
            )
            what += f"model {base.name}"
            raise InputError(what, where=f"{adapter.folder.name}/config.json", expected="the base's settings")


def _replace_adapter(adapter: Path, base: AdapterBase, target: Path) -> None:
    """Put a base's configuration and weights in place of an adapter's files, and a missing tokenizer."""
    for name in (CONFIG, WEIGHTS, BASE, "config.json"):
        (target / name).unlink(missing_ok=True)
    _link(base.path / "config.json", target / "config.json")
    for file in (*list_weight_files(base.path), *base.path.glob("*.index.json")):
        _link(file, target / file.name)
    if (adapter / "tokenizer_config.json").is_file() or (adapter / "tokenizer.json").is_file():
        return
    for file in (file for pattern in _TOKENIZER for file in base.path.glob(pattern)):
        known = file.name in _NOT_TOKENIZER or file.name.endswith(".index.json")
        if file.is_file() and not known and not (target / file.name).exists():
            _link(file, target / file.name)


def _link_files(source: Path, target: Path) -> None:
    for file in source.iterdir():
        if file.is_file():
            _link(file, target / file.name)


def _link_tree(source: Path, target: Path) -> None:
    """Link a folder's files, and those of folders in it; a link to a folder stays out, as in the hash."""
    _link_files(source, target)
    for entry in source.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            (target / entry.name).mkdir()
            _link_tree(entry, target / entry.name)


def _link(source: Path, target: Path) -> None:
    try:
        target.symlink_to(source.resolve())
    except (OSError, NotImplementedError):  # Windows may forbid links
        shutil.copyfile(source, target)
