"""Join a Ray cluster quietly and quickly; check that nodes share a folder."""

from __future__ import annotations

import importlib
import logging
import os
import signal
import socket
import sysconfig
import threading
from collections.abc import Iterator
from contextlib import chdir, contextmanager
from pathlib import Path
from typing import Any

from bench.errors import InputError
from bench.records.filesystem import lock_descriptor

WHERE = "--ray-address"
_QUIET = {"RAY_DEDUP_LOGS_SKIP_REGEX": ".", "RAY_USAGE_STATS_ENABLED": "0"}
"""Settings at ray's import; by default Ray prints lost nodes to stdout."""
_CONNECT = 5.0  # seconds in which a cluster has to answer
_GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
_SETTINGS = b"\x04"  # kind of the frame with which gRPC answers


@contextmanager
def hold_folder(folder: Path) -> Iterator[Path]:
    """Hold a lock in the results folder: a node that sees it shares the folder and its locks."""
    path = folder.absolute() / ".ray"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as error:
        raise InputError(f"results can't be written: {error.strerror}", where=str(folder)) from error
    try:
        try:
            lock_descriptor(descriptor, shared=True)
        except OSError as error:
            what = f"this folder has no locks: {error.strerror}"
            expected = "a file system with flock, which frees the locks of a lost node"
            raise InputError(what, where=str(folder), expected=expected) from error
        yield path
    finally:
        os.close(descriptor)


@contextmanager
def join_cluster(address: str) -> Iterator[Any]:
    """Yield ray, joined to the cluster; leave it afterwards, unless the program had joined before."""
    address = address or os.environ.get("RAY_ADDRESS") or "auto"
    if address not in ("auto", "local"):
        _check_answer(address)
        os.environ.setdefault("RAY_NUM_REDIS_GET_RETRIES", "1")  # of 41 s each; Ray's default is 20
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)
    try:
        ray = importlib.import_module("ray")
    except ModuleNotFoundError as error:
        hint = "pip install 'cse-bench[ray]'"
        raise InputError("ray is not installed", where="--executor ray", hint=hint) from error
    if ray.is_initialized():
        yield ray
        return
    try:
        _start_ray(ray, address)
        yield ray
    finally:
        ray.shutdown()


def _start_ray(ray: Any, address: str) -> None:
    """Join or start a cluster; raises InputError."""
    options = {"include_dashboard": False} if address == "local" else {}
    before = signal.getsignal(signal.SIGTERM)
    try:
        with chdir(sysconfig.get_path("purelib")):  # workers would import from the folder that Ray starts in
            ray.init(address, log_to_driver=False, logging_level=logging.CRITICAL, **options)
    except ConnectionError as error:
        if address != "auto":
            raise InputError(f"no Ray cluster answers at {address}: {error}", where=WHERE) from error
        hint = "start one with `ray start --head`, or name one: --ray-address HOST:PORT, or local"
        raise InputError("no Ray cluster runs on this machine", where="--executor ray", hint=hint) from error
    except Exception as error:
        reason = " ".join(str(error).split())[:400]
        raise InputError(f"Ray can't start: {type(error).__name__}: {reason}", where=WHERE) from error
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before)  # ends the run at once, as without Ray


def _check_answer(address: str) -> None:
    """Raise InputError unless a gRPC server answers; Ray itself would take minutes."""
    host, _, port = address.rpartition(":")
    form = "HOST:PORT of the head node, auto or local"
    if "://" in address:
        hint = "run bench on a node of the cluster, by `ray job submit` or by hand"
        raise InputError(f"'{address}' is Ray's client", where=WHERE, expected=form, hint=hint)
    if not host or not port.isdecimal() or not 0 < int(port) < 2**16:
        raise InputError(f"'{address}' is not an address", where=WHERE, expected=form)
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT) as connection:
            connection.sendall(_GREETING)
            answer = connection.recv(9)
    except OSError as error:
        what = f"no Ray cluster answers at {address}: {error.strerror or error}"
        hint = "`ray status` on the head node shows whether it runs"
        raise InputError(what, where=WHERE, hint=hint) from error
    if answer[3:4] != _SETTINGS and os.environ.get("RAY_USE_TLS") not in ("1", "true"):
        expected = "the port of `ray start --head`, by default 6379"
        raise InputError(f"the server at {address} is not a Ray cluster", where=WHERE, expected=expected)
