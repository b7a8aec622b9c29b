"""Runs a program of the setup, and shows how far it is: on a terminal in one line, elsewhere in a line every ten seconds."""

from __future__ import annotations

import math
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence

TERMINAL_SECONDS = 0.2
LINES_SECONDS = 10.0
CLEAR_LINE = "\r\x1b[K"


class Failed(Exception):
    """A program that ended with another exit code than 0. `output`: all that it printed."""

    def __init__(self, command: Sequence[str], exit_code: int, output: str) -> None:
        super().__init__(f"{' '.join(command)} failed (exit code {exit_code})")
        self.output = output


class Progress:
    """The progress of one step: how many of its packages a program has named, and for how long it runs."""

    def __init__(self, packages: int = 0, now: Callable[[], float] = time.monotonic) -> None:
        self._packages = packages
        self.named = 0
        self._now = now
        self._begin = self._shown = now()
        self._terminal = sys.stdout.isatty()

    def package(self) -> None:
        self.named = min(self.named + 1, self._packages)

    def show(self) -> None:
        elapsed = self._now() - self._begin
        if self._now() - self._shown < (TERMINAL_SECONDS if self._terminal else LINES_SECONDS):
            return
        self._shown = self._now()
        text = f"setup: {self.named} of {self._packages} packages, {elapsed:.0f} s" if self.named else f"setup: installing for {elapsed:.0f} s"
        print(f"{CLEAR_LINE}{text}" if self._terminal else text, end="" if self._terminal else "\n", flush=True)

    def clear(self) -> None:
        if self._terminal:
            print(CLEAR_LINE, end="", flush=True)


def run(command: Sequence[str], environment: Mapping[str, str], progress: Progress, package_line: str = "", seconds: float = math.inf) -> None:
    """Run the program, which names a package in each line that begins with `package_line`. Raise Failed if it fails or takes longer."""
    until = time.monotonic() + seconds
    process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert process.stdout is not None
    output = bytearray()
    seen = 0
    try:
        while True:
            readable, _, _ = select.select([process.stdout], [], [], TERMINAL_SECONDS)
            if readable:
                received = os.read(process.stdout.fileno(), 1 << 16)
                if not received:
                    break
                output += received
                for line in bytes(output[seen:]).splitlines(keepends=True):
                    if not line.endswith(b"\n"):
                        break
                    seen += len(line)
                    if package_line and line.startswith(package_line.encode()):
                        progress.package()
            progress.show()
            if time.monotonic() > until:
                raise Failed(command, -signal.SIGTERM, output.decode(errors="replace"))
        exit_code = process.wait()
    finally:
        progress.clear()
        process.stdout.close()
        if process.poll() is None:
            process.terminate()
            process.wait()
    if exit_code:
        raise Failed(command, exit_code, output.decode(errors="replace"))
