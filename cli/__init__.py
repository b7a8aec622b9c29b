"""The `tenure` command. Each command is imported when it is asked for, so that `tenure health` costs next to nothing."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module

import tenure

VERSION = tenure.__version__

USAGE = 64
SOFTWARE = 70
PLATFORM = 71
DISK = 74
INTERRUPTED = 130
PIPE_CLOSED = 141


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; what it returns is the exit code of the process."""
    try:
        if sys.platform == "win32":
            print("tenure: Windows is not supported; run it in Docker or in WSL", file=sys.stderr)
            return PLATFORM
        from cli.command_line import read

        open_what_is_closed()
        options = read(sys.argv[1:] if arguments is None else list(arguments))
        code = 0 if options is None else int(import_module(options.run).run(options))
        sys.stdout.flush()
        return code
    except SystemExit as end:  # help, or a command line that cannot be understood
        return int(end.code or 0) if flushed() else PIPE_CLOSED
    except KeyboardInterrupt:
        flushed()
        return INTERRUPTED
    except BrokenPipeError:
        let_go_of_output()
        return PIPE_CLOSED
    except Exception as error:
        return complain(error)


def open_what_is_closed() -> None:
    """Whoever started us has closed a stream (`<&-`): nothing comes from it and nothing goes there, and no socket gets its number."""
    for name, mode, flags in (("stdin", "r", os.O_RDONLY), ("stdout", "w", os.O_WRONLY), ("stderr", "w", os.O_WRONLY)):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.open(os.devnull, flags), mode, closefd=False))  # noqa: SIM115 (it stays open)


def complain(error: Exception) -> int:
    """One line for whatever went wrong; no traceback, except for whoever asks for one."""
    from cli.failure import Failure
    from cli.shown import plain

    if os.environ.get("TENURE_DEBUG"):
        raise error
    cause = error.__cause__ or error.__context__  # compiled code does not set the former
    if isinstance(error, Failure):
        line, code = error.line, error.code
    elif isinstance(error, OSError):
        line, code = f"{error.filename or 'standard output'}: {error.strerror or error}", DISK
    elif type(error).__name__ == "EncodeError" and str(error).startswith("a string of "):  # longer than a name may be
        line, code = str(error), USAGE
    elif isinstance(cause, UnicodeEncodeError):  # bytes of the command line, on their way into a request
        line, code = f"'{plain(str(cause.object))}' is no UTF-8, and names are", USAGE
    else:
        line, code = f"a defect of this command: {type(error).__name__}: {error} (TENURE_DEBUG=1 shows where)", SOFTWARE
    flushed()
    with suppress(OSError):
        print(f"tenure: {plain(line)}", file=sys.stderr, flush=True)
    return code


def flushed() -> bool:
    """Writes what is still buffered, if anybody takes it."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except (OSError, KeyboardInterrupt):
        let_go_of_output()
        return False
    return True


def let_go_of_output() -> None:
    """Nobody reads any more: what is still buffered must not be tried again when Python ends."""
    with suppress(OSError, ValueError, AttributeError), open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), sys.stdout.fileno())
