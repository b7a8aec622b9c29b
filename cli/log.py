"""`tenure log`: look into logs, Kafka's too, without changing or locking anything. What to do with them is one module each.

Lines that are not what was asked for go to standard error. A reader that has seen enough (`| head`) ends the command quietly.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module

from cli.log_files import InputError

# As `tenure serve` counts them (broker/start.py), and EX_NOINPUT.
SOUND, DAMAGED, NO_INPUT, DISK = 0, 65, 66, 74


class Output:
    """Where lines go, and the exit code that comes of them: the first reason not to return 0 stays."""

    def __init__(self) -> None:
        self.code = SOUND
        reconfigure = getattr(sys.stdout, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace", line_buffering=sys.stdout.isatty())

    def line(self, text: str) -> None:
        sys.stdout.write(text + "\n")

    def complain(self, text: str, code: int = SOUND) -> None:
        """On standard error, behind what was printed before it."""
        sys.stdout.flush()
        print(f"tenure: {text}", file=sys.stderr, flush=True)
        self.code = self.code or code


def run(options: argparse.Namespace) -> int:
    if sys.stdout is None:  # closed by whoever started us
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
    output = Output()
    work: Callable[[argparse.Namespace, Output], None] = import_module(f"cli.log_{options.action}").run
    try:
        work(options, output)
        sys.stdout.flush()
    except BrokenPipeError:
        # What is still buffered must not be tried again when Python ends.
        with suppress(OSError, ValueError), open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), sys.stdout.fileno())
    except InputError as error:
        output.complain(str(error), NO_INPUT)
    except OSError as error:
        output.complain(f"{error.filename}: {error.strerror}" if error.filename else str(error), DISK)
    return output.code
