"""Chromium, driven through its pipe: a page's console messages, requests and screenshots."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

NAMES: Final = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
ARGUMENTS: Final = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--remote-debugging-pipe")


def find() -> str | None:
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Page:
    """One page of the browser; `events` has all events about the page."""

    def __init__(self, to_fd: int, from_fd: int) -> None:
        self._to_fd, self._from_fd = to_fd, from_fd
        self._number = 0
        self._unread = b""
        self._session: str | None = None
        self.events: list[dict[str, Any]] = []
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.ask(f"{domain}.enable")

    def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._to_fd, json.dumps(message).encode() + b"\0")
        while True:
            event = self._next()
            if event.get("id") == self._number:
                assert "error" not in event, event
                return dict(event["result"])
            self.events.append(event)

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._unread:
            more = os.read(self._from_fd, 1 << 16)
            assert more, "the browser has ended"
            self._unread += more
        message, _, self._unread = self._unread.partition(b"\0")
        return dict(json.loads(message))

    def open(self, path: Path, *, width: int = 1200, height: int = 900, dark: bool = False) -> None:
        phone = width < 600
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=2 if phone else 1, mobile=phone)
        self.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        self.ask("Page.navigate", url=path.as_uri())
        while not any(event["method"] == "Page.loadEventFired" for event in self.events):
            self.events.append(self._next())
        self.value("new Promise((done) => requestAnimationFrame(() => setTimeout(done, 50)))")

    def value(self, expression: str) -> Any:
        result = self.ask("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def screenshot(self, path: Path, *, whole: bool = True) -> None:
        """A picture of the whole page, or of its part in the window."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(base64.b64decode(self.ask("Page.captureScreenshot", captureBeyondViewport=whole)["data"]))

    def print(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(base64.b64decode(self.ask("Page.printToPDF", printBackground=True)["data"]))

    @property
    def console_messages(self) -> list[str]:
        """All console messages, exceptions and dialogs of the page."""
        methods = ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded", "Page.javascriptDialogOpening")
        return [json.dumps(event["params"]) for event in self.events if event["method"] in methods]

    @property
    def fetched(self) -> list[str]:
        return [event["params"]["request"]["url"] for event in self.events if event["method"] == "Network.requestWillBeSent"]


@contextmanager
def browser(program: str) -> Iterator[Page]:
    read_there, write_here = os.pipe()
    read_here, write_there = os.pipe()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:  # its processes do not end together
        # The browser reads from descriptor 3 and writes to descriptor 4.
        command = f'exec "$@" 3<&{read_there} 4>&{write_there}'
        started = subprocess.Popen(
            ["bash", "-c", command, "bash", program, *ARGUMENTS, f"--user-data-dir={profile}", "about:blank"],
            pass_fds=(read_there, write_there),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(read_there)
        os.close(write_there)
        try:
            yield Page(write_here, read_here)
        finally:
            started.kill()
            started.wait()
            os.close(write_here)
            os.close(read_here)
