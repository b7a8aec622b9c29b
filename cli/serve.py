"""`tenure serve`: settings, logs and the data directory in order, then the broker; one line and an exit code for whatever fails."""

from __future__ import annotations

import argparse
import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from broker.logging.sink import LineSink
from broker.runtime import start_trace
from broker.runtime.start import ExitCode, StartError, remember_signal
from broker.runtime.start_trace import mark
from broker.settings.config import Config, ConfigError, load_config
from cli.failure import readable


def run(options: argparse.Namespace) -> int:
    # Until the broker handles it: as the first process of a container, this one would not even hear of it.
    before = signal.signal(signal.SIGTERM, remember_signal)
    try:
        return run_until_stopped(options)
    finally:
        signal.signal(signal.SIGTERM, before)


def run_until_stopped(options: argparse.Namespace) -> int:
    start_trace.requested = options.trace_start
    mark("command_line")
    hold_standard_descriptors()
    try:
        config = load_config(
            config_file=options.config,
            listen=options.listen,
            advertise=options.advertise,
            data=options.data,
            profile=options.profile,
            settings=[*options.settings, *parent_setting(options.exit_with_parent)],
            environ=os.environ,
        )
    except ConfigError as error:
        complain(*error.problems)
        return error.code
    mark("settings")
    try:
        with data_directory(config) as ready:
            return serve(ready)
    except StartError as error:
        complain(str(error))
        return error.code
    except OSError as error:
        complain(f"{error.filename}: {error.strerror}" if error.filename else str(error))
        return ExitCode.DISK


def parent_setting(wanted: bool | None) -> list[str]:
    return [] if wanted is None else [f"exit.with.parent={str(wanted).lower()}"]


def serve(config: Config) -> int:
    """Run the broker with its logs; a failure is reported after everything that was logged before it."""
    from broker.logging import logs
    from broker.logging.logs import log

    logs.configure(config.log_level, config.log_format)
    mark("logs")
    try:
        from broker.server import serve as serve_forever

        mark("modules")
        return serve_forever(config)
    except (StartError, OSError):
        raise
    except Exception:
        log.exception("the broker has a defect and stops")
        return ExitCode.SOFTWARE
    finally:
        logs.close()


@contextmanager
def data_directory(config: Config) -> Iterator[Config]:
    """A directory that goes with the process where the profile says so; its name tells whose it was should it stay behind."""
    if not config.temporary_data:
        yield config
        return
    import tempfile

    # Named, because tempfile would find out by leaving a file there for a moment, and a signal may come in it.
    directory = tempfile.mkdtemp(prefix=f"tenure-{config.profile}-{os.getpid()}-", dir=os.environ.get("TMPDIR") or "/tmp")
    try:
        yield replace(config, data_directory=directory)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def hold_standard_descriptors() -> None:
    """Started without standard error, the next file opened would be descriptor 2, and log lines would land in it."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(descriptor, True)
    os.close(descriptor)


def complain(*problems: str) -> None:
    """One line each; like a log line it waits for no reader, so that a stuck pipe cannot keep the process from ending."""
    sink = LineSink(2, lambda count: b"")
    for problem in problems:
        sink.write(f"tenure: {readable(problem)}\n".encode("utf-8", "backslashreplace"))
    sink.close()
