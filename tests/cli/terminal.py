"""A process whose standard streams are a terminal."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import subprocess
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Self

SECONDS = 20


class Terminal:
    def __init__(self, command: Sequence[str], env: Mapping[str, str]) -> None:
        self._master, slave = pty.openpty()
        self.process = subprocess.Popen(
            command, env=env, stdin=slave, stdout=slave, stderr=slave, start_new_session=True, preexec_fn=controlling(slave)
        )
        os.close(slave)
        self.text = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.process.kill()
        self.process.wait(SECONDS)
        os.close(self._master)

    def type(self, keys: str, until: str) -> str:
        """Type these keys; returns the output after them, as soon as it has the pattern."""
        self.text = ""
        os.write(self._master, keys.encode())
        return self.until(until)

    def press(self, keys: bytes) -> None:
        os.write(self._master, keys)

    def until(self, pattern: str | None) -> str:
        """Read until the pattern appears; without a pattern, until the process has closed the terminal."""
        deadline = time.monotonic() + SECONDS
        while pattern is None or not re.search(pattern, self.text):
            assert time.monotonic() < deadline, self.text
            if select.select([self._master], [], [], 0.1)[0]:
                try:
                    self.text += os.read(self._master, 10_000).decode()
                except OSError:  # the other end is closed
                    assert pattern is None, self.text
                    break
        return self.text

    def end(self) -> int:
        self.until(None)
        return self.process.wait(SECONDS)


def controlling(slave: int) -> Callable[[], object]:
    """Make this the controlling terminal of the process, so that Ctrl-C reaches it."""
    return lambda: fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
