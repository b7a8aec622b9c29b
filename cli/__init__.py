"""The `tenure` command. Each command is imported when it is asked for, so that `tenure health` costs next to nothing."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module

VERSION = "0.1.0"

USAGE = 64
SOFTWARE = 70
PLATFORM = 71
INTERRUPTED = 130
PIPE_CLOSED = 141


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; what it returns is the exit code of the process."""
    from cli.command_line import read

    given = sys.argv[1:] if arguments is None else list(arguments)
    if sys.platform == "win32":
        print("tenure: Windows is not supported; run it in Docker or in WSL", file=sys.stderr)
        return PLATFORM
    try:
        options = read(given)
        if options is None:
            return 0
        code = int(import_module(options.run).run(options))
        if sys.stdout is not None:
            sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        let_go_of_output()
        return PIPE_CLOSED
    except Exception as error:
        return complain(error)


def complain(error: Exception) -> int:
    """One line for whatever went wrong; no traceback, except for whoever asks for one."""
    from cli.failure import Failure

    if os.environ.get("TENURE_DEBUG"):
        raise error
    if isinstance(error, Failure):
        line, code = error.line, error.code
    elif isinstance(error, OSError):
        line, code = f"{error.filename}: {error.strerror}" if error.filename else str(error.strerror or error), 74
    else:
        line, code = f"a defect of this command: {type(error).__name__}: {error} (TENURE_DEBUG=1 shows where)", SOFTWARE
    from cli.shown import plain

    try:
        if sys.stdout is not None:
            sys.stdout.flush()
        print(f"tenure: {plain(line)}", file=sys.stderr, flush=True)
    except OSError:
        let_go_of_output()
    return code


def let_go_of_output() -> None:
    """Nobody reads any more: what is still buffered must not be tried again when Python ends."""
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
    except (OSError, ValueError, AttributeError):
        pass
