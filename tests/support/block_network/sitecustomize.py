"""Put on PYTHONPATH by conftest.py, so that every process a test starts can reach loopback only."""

from __future__ import annotations

import ipaddress
import os
import socket
from typing import Any

_LOOPBACK_NAMES = {"localhost", "", None}


def _check(host: Any) -> None:
    name = host.decode() if isinstance(host, bytes) else host
    if name in _LOOPBACK_NAMES:
        return
    try:
        if ipaddress.ip_address(name).is_loopback:
            return
    except ValueError:
        pass
    if "BENCH_TEST_ATTEMPTS" in os.environ:  # a library may swallow the error
        with open(os.environ["BENCH_TEST_ATTEMPTS"], "a", encoding="utf-8") as stream:
            stream.write(f"{name}\n")
    raise OSError(f"blocked by the tests: network access to {name!r}")


class LoopbackSocket(socket.socket):
    """A socket that connects to this machine only."""

    def connect(self, address: Any) -> None:
        if self.family in (socket.AF_INET, socket.AF_INET6):
            _check(address[0])
        super().connect(address)

    def connect_ex(self, address: Any) -> int:
        if self.family in (socket.AF_INET, socket.AF_INET6):
            _check(address[0])
        return super().connect_ex(address)


_getaddrinfo = socket.getaddrinfo


def _loopback_getaddrinfo(host: Any, *arguments: Any, **options: Any) -> Any:
    _check(host)
    return _getaddrinfo(host, *arguments, **options)


socket.socket = LoopbackSocket  # type: ignore[misc]
socket.getaddrinfo = _loopback_getaddrinfo
