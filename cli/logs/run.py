"""`tenure log`: runs the module of an action. Messages go to standard error; a closed output pipe (`| head`) ends the command silently."""

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

# Exit codes of sysexits.h, as in broker/runtime/start.py.
SOUND, DAMAGED, NO_INPUT, DISK = 0, 65, 66, 74


class OutputError(Exception):
    """Standard output cannot be written. Not an OSError: in this command an OSError means an unreadable file."""


class Output:
    """Prints lines and messages, and keeps the exit code, which is that of the first failure."""

    def __init__(self) -> None:
        self.code = SOUND
        self._reason = self._hint = ""  # of the first failure
        self._stream: TextIO | None = sys.stdout  # None if the parent process closed it
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

    def report(self, text: str, code: int = SOUND) -> None:
        """Print a message to standard error, after the output so far. With a code, the command also fails."""
        if code:
            self.fail(code, text)
        self.flush()
        with suppress(OSError):
            print(f"tenure: {readable(text)}", file=sys.stderr, flush=True)

    def fail(self, code: int, reason: str, hint: str = "") -> None:
        if not self.code:
            self.code, self._reason, self._hint = code, reason, hint

    def error(self) -> dict[str, object]:
        """The error field of the last JSON line, once; {} without a failure."""
        reason, self._reason = self._reason, ""
        if not reason:
            return {}
        from cli.failure import Failure

        return {"error": Failure(self.code, reason, hint=self._hint or None).document()}

    def stop_output(self, reason: BaseException | None) -> None:
        """Point standard output at /dev/null, so that Python does not flush its buffer at exit, and report the error."""
        with suppress(OSError, ValueError), open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), sys.stdout.fileno())
        if not isinstance(reason, BrokenPipeError):
            self.report(f"standard output: {reason.strerror if isinstance(reason, OSError) else reason}", DISK)


def run(options: argparse.Namespace) -> int:
    output = Output()
    work: Callable[[argparse.Namespace, Output], None] = import_module(f"cli.logs.{options.action}").run
    try:
        try:
            work(options, output)
        except InputError as error:
            output.report(str(error), NO_INPUT)
        except OSError as error:
            output.report(f"{error.filename}: {error.strerror}" if error.filename else str(error), DISK)
        if options.json and (last := output.error()):
            output.line(json.dumps(last, ensure_ascii=False))
        output.flush()
    except OutputError as error:
        output.stop_output(error.__cause__)
    return output.code
