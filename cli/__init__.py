"""The `tenure` command. Each subcommand is imported on use, so that `tenure health` starts fast."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING

import tenure

if TYPE_CHECKING:
    from cli.failure import Failure

VERSION = tenure.__version__

USAGE = 64
SOFTWARE = 70
PLATFORM = 71
DISK = 74
INTERRUPTED = 130
PIPE_CLOSED = 141


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return the exit code of the process."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    options: argparse.Namespace | None = None
    closed = open_closed_streams()
    try:
        if sys.platform == "win32":
            raise ended(PLATFORM, "Windows is not supported; run it in Docker or in WSL", "run it in Docker or in WSL")
        from cli.command_line import read

        options = read(words)
        if closed and (options is None or prints(options)):
            raise output_closed()
        code = 0 if options is None else int(import_module(options.run).run(options))
        finish(words, options, code)
        sys.stdout.flush()
        return code
    except SystemExit as end:  # --help and --version
        if closed and not end.code:
            return complain(output_closed(), words, options)
        return int(end.code or 0) if flushed() else PIPE_CLOSED
    except KeyboardInterrupt:
        if not getattr(options, "follow", False):  # a stream is ended like that
            with suppress(OSError):
                finish(words, options, INTERRUPTED, ended(INTERRUPTED, "interrupted"))
        flushed()
        return INTERRUPTED
    except BrokenPipeError:
        let_go_of_output()
        return PIPE_CLOSED
    except Exception as error:
        return complain(error, words, options)


def open_closed_streams() -> bool:
    """Put /dev/null behind standard streams that were closed (`<&-`), so that no socket gets their numbers; returns whether standard output was closed."""
    closed = sys.stdout is None
    for name, mode, flags in (("stdin", "r", os.O_RDONLY), ("stdout", "w", os.O_WRONLY), ("stderr", "w", os.O_WRONLY)):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.open(os.devnull, flags), mode, closefd=False))  # noqa: SIM115 (it stays open)
    return closed


def prints(options: argparse.Namespace) -> bool:
    """Whether a command is run for its output. Commands that change something, or answer with their exit code, work without."""
    return bool(getattr(options, "dry_run", getattr(options, "for_output", True)))


def output_closed() -> Failure:
    line = "standard output is closed, and this command only prints; >/dev/null runs it all the same"
    return ended(DISK, line, "redirect standard output")


def ended(code: int, line: str, hint: str | None = None) -> Failure:
    """A Failure, imported only when needed."""
    from cli.failure import Failure

    return Failure(code, line, hint=hint)


def finish(words: Sequence[str], options: argparse.Namespace | None, code: int, error: Failure | None = None) -> None:
    """Print the JSON document that a command has kept until its end, with the error, or the error alone."""
    if "--json" in (words[: words.index("--")] if "--" in words else words):  # also where the command line is invalid
        from cli.shown import end_json

        end_json(getattr(options, "screen", None), code, error)


def complain(error: Exception, words: Sequence[str], options: argparse.Namespace | None) -> int:
    """One line for any error, and a JSON object with --json; no traceback, unless TENURE_DEBUG asks for one."""
    from cli.shown import plain

    if os.environ.get("TENURE_DEBUG"):
        raise error
    problem = explained(error)
    if flushed() and not (isinstance(error, OSError) and error.filename is None):
        with suppress(OSError):
            finish(words, options, problem.code, problem)
        flushed()
    with suppress(OSError):
        print(f"tenure: {plain(problem.line)}", file=sys.stderr, flush=True)
    return problem.code


def explained(error: Exception) -> Failure:
    """The message for an exception, and the exit code."""
    from cli.failure import Failure
    from cli.shown import plain

    cause = error.__cause__ or error.__context__  # compiled code does not set the former
    if isinstance(error, Failure):
        return error
    if isinstance(error, OSError):
        return Failure(DISK, f"{error.filename or 'standard output'}: {error.strerror or error}")
    if type(error).__name__ == "EncodeError" and str(error).startswith("a string of "):  # longer than a name may be
        return Failure(USAGE, str(error))
    if isinstance(cause, UnicodeEncodeError):  # bytes of the command line, on their way into a request
        return Failure(USAGE, f"'{plain(str(cause.object))}' is no UTF-8, and names are")
    return Failure(SOFTWARE, f"a defect of this command: {type(error).__name__}: {error} (TENURE_DEBUG=1 shows where)")


def flushed() -> bool:
    """Write buffered output, unless the reader has closed it."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except (OSError, KeyboardInterrupt):
        let_go_of_output()
        return False
    return True


def let_go_of_output() -> None:
    """The reader is gone: buffered output must not be written again when Python ends."""
    with suppress(OSError, ValueError, AttributeError), open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), sys.stdout.fileno())
