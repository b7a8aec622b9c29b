"""Chromium, driven through its pipe: what a page says on its console, what it fetches, what it looks like.

`python -m tests.pipeline.browser` installs it where it is missing (`make spark-test` does).
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from tests.installing import install

NAMES: Final = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
ARGUMENTS: Final = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--remote-debugging-pipe")


def find() -> str | None:
    return next((found for name in NAMES if (found := shutil.which(name))), None)


class Page:
    """One page; `events` has all events of the browser about it."""

    def __init__(self, to: int, back: int) -> None:
        self._to, self._back = to, back
        self._number = 0
        self._left = b""
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
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            got = self._next()
            if got.get("id") == self._number:
                assert "error" not in got, got
                return dict(got["result"])
            self.events.append(got)

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._left:
            more = os.read(self._back, 1 << 16)
            assert more, "the browser has ended"
            self._left += more
        message, _, self._left = self._left.partition(b"\0")
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

    def screenshot(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(base64.b64decode(self.ask("Page.captureScreenshot", captureBeyondViewport=True)["data"]))

    def print(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(base64.b64decode(self.ask("Page.printToPDF", printBackground=True)["data"]))

    @property
    def complaints(self) -> list[str]:
        """All console messages of the page or about it."""
        said = ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded", "Page.javascriptDialogOpening")
        return [json.dumps(event["params"]) for event in self.events if event["method"] in said]

    @property
    def fetched(self) -> list[str]:
        return [event["params"]["request"]["url"] for event in self.events if event["method"] == "Network.requestWillBeSent"]


@contextmanager
def browser(program: str) -> Iterator[Page]:
    read_there, write_here = os.pipe()
    read_here, write_there = os.pipe()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:  # its processes end one after the other
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


def main() -> int:
    why = "" if find() is not None else install("chromium")
    if why:
        print(f"spark-test: no Chromium on PATH, and {why}; the report's tests in a browser are skipped", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
