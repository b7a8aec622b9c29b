"""`tenure serve`: settings, logs and the data directory in order, then the broker or several nodes; one line and an exit code for whatever
fails."""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from broker.logging.sink import LineSink
from broker.runtime import start_trace
from broker.runtime.start import SUPERVISED, ExitCode, StartError, remember_signal
from broker.runtime.start_trace import mark
from broker.settings.config import Config, ConfigError, load_config
from cli.failure import readable


def run(options: argparse.Namespace) -> int:
    # Until the broker handles the signal: the first process of a container would otherwise ignore it.
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
        config = load(options)
    except ConfigError as error:
        complain(*error.problems)
        return error.code
    mark("settings")
    try:
        with data_directory(config) as ready:
            return supervise(ready, options) if wants_supervisor(config) else serve(ready)
    except StartError as error:
        complain(str(error))
        return error.code
    except OSError as error:
        complain(f"{error.filename}: {error.strerror}" if error.filename else str(error))
        return ExitCode.DISK


def load(options: argparse.Namespace) -> Config:
    """The settings of all sources. Raises ConfigError."""
    settings = [*options.settings, *parent_setting(options.exit_with_parent)]
    if options.nodes is not None:
        settings.append(f"cluster.nodes={options.nodes}")
    if options.node_id is not None:
        settings.append(f"node.id={options.node_id}")
    if options.store is not None:
        settings.append(f"store={options.store}")
    if options.cluster is not None:
        settings.append(f"cluster.name={options.cluster}")

    def with_settings(*more: str) -> Config:
        return load_config(
            config_file=options.config,
            listen=[first_port(text) for text in options.listen],
            advertise=[first_port(text) for text in options.advertise],
            data=options.data,
            profile=options.profile,
            settings=[*settings, *more],
            environ=os.environ,
        )

    config = with_settings()
    if options.node_id is not None and "cluster.nodes" not in config.given:
        config = with_settings("cluster.nodes=2")  # any number above 1 says that there are others
    if options.nodes is not None and options.nodes > 1 and "node.id" in config.given:
        raise ConfigError([f"--nodes {options.nodes}: node.id={config.node_id} is set too, and each node gets its own id; leave it out"])
    problems = [problem for flag in ("listen", "advertise") for text in getattr(options, flag) for problem in range_problem(flag, text, config)]
    if problems:
        raise ConfigError(problems)
    return config


PORTS = re.compile(r"(.*:)([0-9]{1,5})-([0-9]{1,5})")  # 127.0.0.1:9092-9095


def first_port(text: str) -> str:
    found = PORTS.fullmatch(text)
    return found[1] + found[2] if found else text


def range_problem(flag: str, text: str, config: Config) -> Iterator[str]:
    """The problem of a port range; a single port is the first of as many as there are nodes."""
    found = PORTS.fullmatch(text)
    if found is None:
        return
    ports = int(found[3]) - int(found[2]) + 1
    if not wants_supervisor(config):
        yield f"--{flag} {text}: a range of ports is for --nodes N"
    elif ports != config.cluster_nodes:
        yield f"--{flag} {text}: {config.cluster_nodes} nodes need {config.cluster_nodes} ports, and this range has {max(ports, 0)}"


def wants_supervisor(config: Config) -> bool:
    """Whether this process starts the nodes; with a node.id it is one of them."""
    return config.cluster_nodes > 1 and "node.id" not in config.given


def supervise(config: Config, options: argparse.Namespace) -> int:
    """Run the nodes in child processes."""
    from broker.logging import logs

    logs.configure(config.log_level, config.log_format)
    try:
        from broker.supervisor import supervise as supervise_nodes

        return supervise_nodes(config, node_arguments(options))
    finally:
        logs.close()


def node_arguments(options: argparse.Namespace) -> list[str]:
    """The arguments that all nodes share."""
    words = ["--trace-start"] if options.trace_start else []
    for flag, value in (("--config", options.config), ("--profile", options.profile), *(("--set", setting) for setting in options.settings)):
        words += [flag, value] if value is not None else []
    return words


def parent_setting(wanted: bool | None) -> list[str]:
    return [] if wanted is None else [f"exit.with.parent={str(wanted).lower()}"]


def serve(config: Config) -> int:
    """Run the broker with its logs; a failure is reported after everything that was logged before it."""
    from broker.logging import logs
    from broker.logging.logs import log

    # Several nodes write to one standard error.
    logs.configure(config.log_level, config.log_format, common={"node_id": config.node_id} if config.cluster_nodes > 1 else None)
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
    """A directory removed with the process if the profile says so; its name has the process id in case it stays behind."""
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
    """One line each; like log lines these do not wait for a reader, so that a stuck pipe cannot keep the process from ending.

    A node tells its supervisor, which tells people once what several nodes cannot start with.
    """
    sink = LineSink(1 if SUPERVISED else 2, lambda count: b"")
    for problem in problems:
        sink.write(f"tenure: {readable(problem)}\n".encode("utf-8", "backslashreplace"))
    sink.close()
