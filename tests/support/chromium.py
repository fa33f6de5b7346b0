"""A headless Chromium over its own pipe: no port, no package, nothing downloaded."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NEEDED = "needs Chromium: apt-get install --no-install-recommends chromium"


class PageLeftError(RuntimeError):
    """The page gave way to another one before it answered."""


class Page:
    """One page, driven by the DevTools protocol."""

    def __init__(self, process: subprocess.Popen[bytes], to: int, back: int) -> None:
        self._process, self._to, self._back = process, to, back
        self._number, self._rest = 0, b""
        self._session: str | None = None
        self.events: list[dict[str, Any]] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")
        self.call("Page.setLifecycleEventsEnabled", enabled=True)

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command and return its result; events that come before it are kept."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == self._number:
                if "error" in answer:
                    left = "navigated" in answer["error"]["message"]
                    raise (PageLeftError if left else RuntimeError)(f"{method}: {answer['error']}")
                result: dict[str, Any] = answer["result"]
                return result
            self.events.append(answer)

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            part = os.read(self._back, 1 << 20)
            if not part:
                raise RuntimeError(f"Chromium ended with {self._process.wait()}")
            self._rest += part
        message, _, self._rest = self._rest.partition(b"\0")
        answer: dict[str, Any] = json.loads(message)
        return answer

    def open(self, path: Path) -> None:
        """Load a file and wait until it is there."""
        loader = self.call("Page.navigate", url=path.as_uri())["loaderId"]
        loaded = {"loaderId": loader, "name": "load"}
        while not any(loaded.items() <= event["params"].items() for event in self.events):
            self.events.append(self._receive())

    def run(self, script: str) -> Any:
        """Evaluate an expression in the page; a promise is awaited."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{script}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def move(self, selector: str) -> None:
        """Move the pointer to the middle of the first element of a selector, which is scrolled into view."""
        box = self.run(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)}); e.scrollIntoView("
            "{block: 'center', behavior: 'instant'}); const b = e.getBoundingClientRect(); "
            "return [b.x + b.width / 2, b.y + b.height / 2] })()"
        )
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=box[0], y=box[1])

    def press(self, key: str, code: int) -> None:
        """Press a key as the keyboard does."""
        text = {"Enter": "\r", " ": " "}.get(key)
        facts = {"key": key, "windowsVirtualKeyCode": code, **({"text": text} if text else {})}
        self.call("Input.dispatchKeyEvent", type="keyDown", **facts)
        self.call("Input.dispatchKeyEvent", type="keyUp", **facts)

    def show_as(self, width: int, height: int, theme: str = "light", media: str = "") -> None:
        """Set the size of the window, the system's colours, and the medium ("print")."""
        features = [{"name": "prefers-color-scheme", "value": theme}]
        self.call("Emulation.setEmulatedMedia", media=media, features=features)
        phone = width < 600
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=phone,
        )

    def requests(self) -> list[str]:
        """Addresses of everything that was asked for."""
        wanted = "Network.requestWillBeSent"
        return [e["params"]["request"]["url"] for e in self.events if e.get("method") == wanted]

    def complaints(self) -> list[str]:
        """Console messages, exceptions and violations of the content security policy."""
        kinds = ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded")
        return [json.dumps(e["params"])[:400] for e in self.events if e.get("method") in kinds]


@contextmanager
def chromium() -> Iterator[Page]:
    """Start Chromium, yield a page, and end it."""
    binary = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    assert binary, NEEDED
    to_read, to_write = os.pipe()
    back_read, back_write = os.pipe()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        # exec through a shell, because Chromium wants its pipe as descriptors 3 and 4
        redirect = f'exec "$0" "$@" 3<&{to_read} 4>&{back_write}'
        flags = [
            "--headless",
            "--no-sandbox",  # CI runs as root
            "--remote-debugging-pipe",
            f"--user-data-dir={profile}",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--disable-background-networking",
            "--host-resolver-rules=MAP * ~NOTFOUND",
            "--no-first-run",
        ]
        process = subprocess.Popen(
            ["bash", "-c", redirect, binary, *flags],  # noqa: S607
            pass_fds=(to_read, back_write),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_read)
        os.close(back_write)
        try:
            yield Page(process, to_write, back_read)
        finally:
            process.kill()
            process.wait()
            os.close(to_write)
            os.close(back_read)
