"""The `tenure` command. Each subcommand is imported on use, so that `tenure health` starts fast."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING

import tenure

if TYPE_CHECKING:
    from types import TracebackType

    from cli.failure import Failure

VERSION = tenure.__version__

USAGE = 64
SOFTWARE = 70
PLATFORM = 71
DISK = 74
INTERRUPTED = 130
SIGNALLED = 128  # plus the number of the signal
PIPE_CLOSED = 141


class Interrupted(KeyboardInterrupt):
    """A signal, as a KeyboardInterrupt for callers that do not distinguish signals. `forced`: a second signal, since the first did not end the command."""

    def __init__(self, number: int, *, forced: bool = False) -> None:
        super().__init__(number)
        self.number = number
        self.forced = forced


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return the exit code of the process."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    options: argparse.Namespace | None = None
    closed = open_closed_streams()
    handler_before: signal.Handlers | None = None
    try:
        if sys.platform == "win32":
            raise make_failure(PLATFORM, "Windows is not supported; run it in Docker or in WSL", "run it in Docker or in WSL")
        from broker.logging.secrets import note_words
        from cli.command_line import parse

        note_words(words)
        options = parse(words)
        if options is not None and options.command != "serve":  # `serve` handles signals itself
            handler_before = handle_sigterm()
        if closed and (options is None or needs_output(options)):
            raise output_closed_failure()
        code = 0 if options is None else int(import_module(options.run).run(options))
        end_json_output(words, options, code)
        sys.stdout.flush()
        return code
    except SystemExit as end:  # --help and --version
        if closed and not end.code:
            return report_error(output_closed_failure(), words, options)
        return int(end.code or 0) if flush_output() else PIPE_CLOSED
    except KeyboardInterrupt as interrupted:
        code = code_of_interrupt(interrupted, options)
        if code:  # for some commands an interrupt is the normal end
            with suppress(OSError):
                end_json_output(words, options, code, make_failure(INTERRUPTED, "interrupted"))
        flush_output()
        return code
    except BrokenPipeError:
        discard_output()
        return PIPE_CLOSED
    except Exception as error:
        return report_error(error, words, options)
    finally:
        if handler_before is not None:
            signal.signal(signal.SIGTERM, handler_before)


def handle_sigterm() -> signal.Handlers | None:
    """Let SIGTERM end the command as Ctrl-C does. Returns the previous handler; None if another handler stays, or outside of the main thread."""
    if signal.getsignal(signal.SIGTERM) != signal.SIG_DFL:
        return None
    try:
        signal.signal(signal.SIGTERM, raise_interrupted)
    except ValueError:  # not in the main thread
        return None
    return signal.SIG_DFL


def raise_interrupted(number: int, frame: object) -> None:
    raise Interrupted(number)


def code_of_interrupt(interrupted: KeyboardInterrupt, options: argparse.Namespace | None) -> int:
    """128 plus the number of the signal. 0, as service managers expect, if a first SIGINT or SIGTERM ended a command that only a signal ends
    (`options.endless`).
    """
    if not isinstance(interrupted, Interrupted):
        interrupted = Interrupted(signal.SIGINT)
    endless = getattr(options, "endless", False) and not interrupted.forced and interrupted.number in (signal.SIGINT, signal.SIGTERM)
    return 0 if endless else SIGNALLED + interrupted.number


def open_closed_streams() -> bool:
    """Open /dev/null for standard streams that were closed (`<&-`), so that no socket gets their numbers; return whether standard output was closed."""
    closed = sys.stdout is None
    for name, mode, flags in (("stdin", "r", os.O_RDONLY), ("stdout", "w", os.O_WRONLY), ("stderr", "w", os.O_WRONLY)):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.open(os.devnull, flags), mode, closefd=False))  # noqa: SIM115 (it stays open)
    return closed


def needs_output(options: argparse.Namespace) -> bool:
    """Whether the command is useless without standard output: it changes nothing, and its exit code tells nothing."""
    return bool(getattr(options, "dry_run", getattr(options, "for_output", True)))


def output_closed_failure() -> Failure:
    line = "standard output is closed, and this command only prints; >/dev/null runs it all the same"
    return make_failure(DISK, line, "redirect standard output")


def make_failure(code: int, line: str, hint: str | None = None) -> Failure:
    """Make a Failure, whose module is imported only when needed."""
    from cli.failure import Failure

    return Failure(code, line, hint=hint)


def end_json_output(words: Sequence[str], options: argparse.Namespace | None, code: int, error: Failure | None = None) -> None:
    """With --json: print the document that the command has collected, with the error if there is one."""
    if "--json" in (words[: words.index("--")] if "--" in words else words):  # also where the command line is invalid
        from cli.shown import end_json

        end_json(getattr(options, "screen", None), code, error)


def report_error(error: Exception, words: Sequence[str], options: argparse.Namespace | None) -> int:
    """Print any error as one line, with --json also as an object. With TENURE_DEBUG, raise it instead, for the traceback."""
    from broker.logging.secrets import hide
    from cli.shown import plain

    if os.environ.get("TENURE_DEBUG"):
        sys.excepthook = print_traceback
        raise error
    problem = failure_of(error)
    if flush_output() and not (isinstance(error, OSError) and error.filename is None):
        with suppress(OSError):
            end_json_output(words, options, problem.exit_code, problem)
        flush_output()
    with suppress(OSError):
        print(f"tenure: {hide(plain(problem.line))}", file=sys.stderr, flush=True)
    return problem.exit_code


def print_traceback(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
    """As Python does at the end of a process, without the logins that the command was given."""
    from traceback import format_exception

    from broker.logging.secrets import hide

    sys.stderr.write(hide("".join(format_exception(kind, error, traceback))))


def failure_of(error: Exception) -> Failure:
    """The message and the exit code for an exception."""
    from cli.failure import Failure
    from cli.shown import plain

    cause = error.__cause__ or error.__context__  # compiled code does not set __cause__
    if isinstance(error, Failure):
        return error
    if isinstance(error, OSError):
        return Failure(DISK, f"{error.filename or 'standard output'}: {error.strerror or error}")
    if type(error).__name__ == "EncodeError" and str(error).startswith("a string of "):  # a name that is too long for the protocol
        return Failure(USAGE, str(error))
    if isinstance(cause, UnicodeEncodeError):  # a command-line argument that is not UTF-8
        return Failure(USAGE, f"'{plain(str(cause.object))}' is not UTF-8; names must be")
    return Failure(SOFTWARE, f"a defect of this command: {type(error).__name__}: {error} (TENURE_DEBUG=1 shows where)")


def flush_output() -> bool:
    """Flush standard output; return False if its reader has closed it."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except (OSError, KeyboardInterrupt):
        discard_output()
        return False
    return True


def discard_output() -> None:
    """Point standard output at /dev/null: Python must not flush its buffer into a closed pipe at exit."""
    with suppress(OSError, ValueError, AttributeError), open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), sys.stdout.fileno())
