"""`tenure log`: read logs, Kafka's too, without changing or locking anything. Each action is a module.

Messages go to standard error. A closed output pipe (`| head`) ends the command quietly.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from typing import TextIO

from cli.failure import readable
from cli.logs.files import InputError

# As `tenure serve` counts them (broker/runtime/start.py), and EX_NOINPUT.
SOUND, DAMAGED, NO_INPUT, DISK = 0, 65, 66, 74


class OutputError(Exception):
    """Standard output takes no more: not to be mistaken for a file that cannot be read."""


class Output:
    """Where lines go, and the exit code that comes of them: the first reason not to return 0 stays."""

    def __init__(self) -> None:
        self.code = SOUND
        self._reason = self._hint = ""  # of the code
        self._stream: TextIO | None = sys.stdout  # None where the parent process closed it
        reconfigure = getattr(self._stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace", line_buffering=sys.stdout.isatty())

    def line(self, text: str) -> None:
        if self._stream is not None:
            try:
                self._stream.write(text + "\n")
            except OSError as error:
                raise OutputError from error

    def flush(self) -> None:
        if self._stream is not None:
            try:
                self._stream.flush()
            except OSError as error:
                raise OutputError from error

    def complain(self, text: str, code: int = SOUND) -> None:
        """On standard error, after the output so far."""
        if code:
            self.fail(code, text)
        self.flush()
        with suppress(OSError):
            print(f"tenure: {readable(text)}", file=sys.stderr, flush=True)

    def fail(self, code: int, reason: str, hint: str = "") -> None:
        if not self.code:
            self.code, self._reason, self._hint = code, reason, hint

    def error(self) -> dict[str, object]:
        """The extra fields of the last JSON line, if there are problems: written once."""
        reason, self._reason = self._reason, ""
        if not reason:
            return {}
        from cli.failure import Failure

        return {"error": Failure(self.code, reason, hint=self._hint or None).document()}

    def give_up(self, reason: BaseException | None) -> None:
        """Buffered output must not be written again when Python ends."""
        with suppress(OSError, ValueError), open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), sys.stdout.fileno())
        if not isinstance(reason, BrokenPipeError):
            self.complain(f"standard output: {reason.strerror if isinstance(reason, OSError) else reason}", DISK)


def run(options: argparse.Namespace) -> int:
    output = Output()
    work: Callable[[argparse.Namespace, Output], None] = import_module(f"cli.logs.{options.action}").run
    try:
        try:
            work(options, output)
        except InputError as error:
            output.complain(str(error), NO_INPUT)
        except OSError as error:
            output.complain(f"{error.filename}: {error.strerror}" if error.filename else str(error), DISK)
        if options.json and (last := output.error()):
            output.line(json.dumps(last, ensure_ascii=False))
        output.flush()
    except OutputError as error:
        output.give_up(error.__cause__)
    return output.code
