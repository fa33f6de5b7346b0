"""A hub on loopback."""

from __future__ import annotations

import hashlib
import io
import tarfile
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from bench.data import downloads, probing_files, senteval

FOLDERS = (
    f"/datasets/{downloads.REPOSITORY}/resolve/{downloads.REVISION}",
    f"/{probing_files.REPOSITORY}/{probing_files.REVISION}/data/probing",
)


def small_sts_files() -> dict[str, bytes]:
    """A SentEval tree for group sts7 with a few pairs a file."""
    files = {}
    for year, names in senteval.STS_YEARS.items():
        for name in names:
            files[f"STS/{year}-en-test/STS.input.{name}.txt"] = f"{year} {name}\tb\nc\td\n".encode()
            files[f"STS/{year}-en-test/STS.gs.{name}.txt"] = b"1.0\n4.0\n"
    for split in ("train", "dev", "test"):
        files[f"STS/STSBenchmark/sts-{split}.csv"] = b"g\tf\ty\t1\t2.0\ta\tb\n"
    header = b"pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment\r\n"
    for name in ("SICK_train", "SICK_trial", "SICK_test_annotated"):
        files[f"SICK/{name}.txt"] = header + b"1\tA\tB\t3.0\tNEUTRAL\r\n"
    return files


def tar_of(files: dict[str, bytes], prefix: str = "./", extra: list[tarfile.TarInfo] | None = None) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for info in extra or []:
            tar.addfile(info)
        for name, content in files.items():
            info = tarfile.TarInfo(prefix + name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


class Hub(ThreadingHTTPServer):
    """Serves files as the hub does; may break off after some bytes and stay broken, or lie about the hash."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files: dict[str, bytes] = {}
        self.break_after: int | None = None
        self.etag: str | None = None
        self.served: list[tuple[str, str | None]] = []


class Handler(BaseHTTPRequestHandler):
    server: Hub
    protocol_version = "HTTP/1.1"

    def _respond(self, *, body: bool) -> None:
        folder, _, name = self.path.rpartition("/")
        content = self.server.files.get(name) if folder in FOLDERS else None
        if content is None:
            self.send_response(404)
            self.send_header("X-Error-Code", "EntryNotFound")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        wanted = self.headers.get("Range")
        start = int(wanted.removeprefix("bytes=").split("-")[0]) if wanted and body else 0
        etag = self.server.etag or hashlib.sha256(content).hexdigest()
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(content) - start))
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("ETag", f'"{etag}"')
        self.send_header("X-Repo-Commit", downloads.REVISION)
        self.end_headers()
        if body:
            self.server.served.append((name, wanted))
            rest = content[start:]
            if self.server.break_after is not None:
                self.wfile.write(rest[: self.server.break_after])
                self.server.break_after = 0
                self.wfile.flush()
                self.close_connection = True
                self.connection.close()
                return
            self.wfile.write(rest)

    def do_HEAD(self) -> None:
        self._respond(body=False)

    def do_GET(self) -> None:
        self._respond(body=True)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    with Hub() as running:
        threading.Thread(target=running.serve_forever, args=(0.01,), daemon=True).start()
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{running.server_port}")
        yield running
        running.shutdown()


def unsafe(name: str, kind: bytes = tarfile.REGTYPE, target: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info
