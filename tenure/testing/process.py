"""The process of a broker for tests: started, found ready by its first lines, and ended with the test run."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Sequence
from pathlib import Path

from .control import Control

START_SECONDS = 20.0
STOP_SECONDS = 5.0
LINES_KEPT = 200


class NoBroker(Exception):
    """No broker could be started: why, and how to install one."""


def command() -> list[str]:
    """How `tenure` is started: as a module of this Python if it is installed there, else from PATH. Raises NoBroker."""
    with contextlib.suppress(ImportError, ValueError):
        if importlib.util.find_spec("tenure.start") is not None:
            return [sys.executable, "-P", "-m", "tenure"]
    found = shutil.which("tenure")
    if found:
        return [found]
    raise NoBroker("no broker is installed: `pip install tenure` into this environment, or `pipx install tenure` beside it")


def image_command(image: str) -> list[str]:
    """How the broker of an image is started: in this machine's network, so that each cluster's port is reached. Raises NoBroker."""
    docker = shutil.which("docker")
    if docker is None:
        raise NoBroker(f"the image {image} needs Docker, and no `docker` is on PATH")
    return [docker, "run", "--rm", "--interactive", "--network", "host", image]


class Process:
    """A started `tenure serve --test-control`; `control` reaches it. It ends with its parent, however that ends."""

    def __init__(
        self, arguments: Sequence[str] = (), *, data: str | os.PathLike[str] | None = None, port: int = 0, nodes: int = 1, tenure: Sequence[str] | None = None
    ) -> None:
        """`nodes`: as many processes that are one cluster. `tenure`: the command, in place of the installed one."""
        whole = [*(command() if tenure is None else tenure), "serve", "--profile", "test", "--test-control", "127.0.0.1:0", "--listen", f"127.0.0.1:{port}"]
        if nodes > 1:
            whole += ["--nodes", str(nodes)]
        if data is not None:
            whole += ["--data", str(Path(data)), "--test-control-on-data"]
        self.lines: deque[str] = deque(maxlen=LINES_KEPT)  # the last lines of its log
        self._starter = os.getpid()
        environment = {name: value for name, value in os.environ.items() if not name.startswith("TENURE_") or name == "TENURE_LOG_LEVEL"}
        self._process = subprocess.Popen(
            [*whole, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
        )
        self._reader = threading.Thread(target=self._read, daemon=True, name="tenure-log")
        self._reader.start()
        self.bootstrap = ""
        self.control: Control = None  # type: ignore[assignment]  # until it listens
        try:
            self.control = self._await_control()
        except BaseException:
            self.stop()
            raise

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def _read(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self.lines.append(line.rstrip("\n"))

    def _await_control(self) -> Control:
        """Read the two lines that say that it listens; no polling."""
        assert self._process.stdout is not None
        addresses: list[str] = []
        watchdog = threading.Timer(START_SECONDS, self._process.kill)
        watchdog.daemon = True
        watchdog.start()
        try:
            for line in self._process.stdout:
                words = line.split()
                if words[:1] == ["listening"]:
                    addresses.append(words[-1])
                elif words[:1] == ["control"]:
                    self.bootstrap = ",".join(addresses)
                    return Control(words[1], words[2])
        finally:
            watchdog.cancel()
        code = self._process.wait(STOP_SECONDS)
        self._reader.join(STOP_SECONDS)
        said = "\n".join(self.lines) or "it said nothing"
        raise NoBroker(f"tenure ended with exit code {code} before it listened: {said}")

    def kill(self) -> None:
        """kill -9."""
        self.control.refuse_in_fork()
        self._process.kill()
        self._process.wait(STOP_SECONDS)

    def stop(self) -> None:
        """End it, in order if it can, and wait for that. In a forked child it is not this process's to end."""
        if os.getpid() != self._starter:
            return
        if self.control is not None:
            self.control.close_all()
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait(STOP_SECONDS)
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        self._reader.join(STOP_SECONDS)
        if self._process.stderr is not None:
            self._process.stderr.close()
