"""`tenure serve`: loads settings, prepares logging and the data directory, and runs the broker or several nodes."""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace

from broker.logging.secrets import hide
from broker.logging.sink import LineSink
from broker.runtime import start_trace
from broker.runtime.start import SUPERVISED, ExitCode, StartError, remember_signal
from broker.runtime.start_trace import mark
from broker.settings.config import Config
from broker.settings.load import ConfigError, load_config
from cli.failure import readable


def run(options: argparse.Namespace) -> int:
    # Remember a SIGTERM that arrives before the broker handles it: the first process of a container ignores it by default.
    before = signal.signal(signal.SIGTERM, remember_signal)
    try:
        return run_until_stopped(options)
    finally:
        signal.signal(signal.SIGTERM, before)


def run_until_stopped(options: argparse.Namespace) -> int:
    start_trace.requested = options.trace_start
    mark("command_line")
    reserve_standard_descriptors()
    try:
        config = load(options)
    except ConfigError as error:
        print_problems(*error.problems)
        return error.code
    mark("settings")
    try:
        if options.test_control:
            return serve_tests(config, options)
        with prepared_config(config) as ready:
            return supervise(ready, options) if wants_supervisor(config) else serve(ready)
    except StartError as error:
        print_problems(str(error))
        return error.code
    except OSError as error:
        print_problems(f"{error.filename}: {error.strerror}" if error.filename else str(error))
        return ExitCode.DISK


def load(options: argparse.Namespace) -> Config:
    """Load the settings of all sources. Raises ConfigError."""
    settings = list(options.settings)
    if options.exit_with_parent is not None:
        settings.append(f"exit.with.parent={str(options.exit_with_parent).lower()}")
    flags = {"nodes": options.nodes, "node-id": options.node_id, "store": options.store, "cluster": options.cluster}

    def with_settings(*more: str) -> Config:
        return load_config(
            config_file=options.config,
            listen=[with_first_port(text) for text in options.listen],
            advertise=[with_first_port(text) for text in options.advertise],
            data=options.data,
            profile=options.profile,
            settings=[*settings, *more],
            environ=environment_of(options),
            other_flags={flag: str(value).strip() for flag, value in flags.items() if value is not None},
        )

    config = with_settings()
    if options.node_id is not None and "cluster.nodes" not in config.given:
        config = with_settings("cluster.nodes=2")  # the exact number does not matter: above 1 it means that there are other nodes
    if options.nodes is not None and options.nodes > 1 and "node.id" in config.given:
        raise ConfigError([f"--nodes {options.nodes}: node.id={config.node_id} is set too, but each node gets its own id; leave it out"])
    problems = [problem for flag in ("listen", "advertise") for text in getattr(options, flag) for problem in range_problem(flag, text, config)]
    if problems:
        raise ConfigError(problems)
    return config


def environment_of(options: argparse.Namespace) -> dict[str, str]:
    """The environment. The data directory that an image names there is not for tests: their clusters are in memory, unless they say otherwise."""
    for_tests = options.test_control and options.profile == "test" and not options.test_control_on_data
    return {name: value for name, value in os.environ.items() if not (for_tests and name == "TENURE_LOG_DIRS")}


PORTS = re.compile(r"(.*:)([0-9]{1,5})-([0-9]{1,5})")  # 127.0.0.1:9092-9095


def with_first_port(text: str) -> str:
    match = PORTS.fullmatch(text)
    return match[1] + match[2] if match else text


def range_problem(flag: str, text: str, config: Config) -> Iterator[str]:
    """The problem if `text` has a range of ports that does not fit the nodes. With a single port, each further node gets the next port."""
    match = PORTS.fullmatch(text)
    if match is None:
        return
    ports = int(match[3]) - int(match[2]) + 1
    if not wants_supervisor(config):
        yield f"--{flag} {text}: a range of ports is for --nodes N"
    elif ports != config.cluster_nodes:
        yield f"--{flag} {text}: {config.cluster_nodes} nodes need {config.cluster_nodes} ports, and this range has {max(ports, 0)}"


def wants_supervisor(config: Config) -> bool:
    """Whether this process starts the nodes. With a node.id it is one of them."""
    return config.cluster_nodes > 1 and "node.id" not in config.given


def supervise(config: Config, options: argparse.Namespace) -> int:
    """Run the nodes in child processes."""
    from broker.logging import logs

    logs.configure(config.log_level, config.log_format)
    logs.started()
    try:
        from broker.supervisor import supervise as supervise_nodes

        return supervise_nodes(config, node_arguments(options))
    finally:
        logs.close()


def node_arguments(options: argparse.Namespace) -> list[str]:
    """The arguments that all nodes share."""
    arguments = ["--trace-start"] if options.trace_start else []
    for flag, value in (("--config", options.config), ("--profile", options.profile), *(("--set", setting) for setting in options.settings)):
        arguments += [flag, value] if value is not None else []
    return arguments


def serve(config: Config) -> int:
    """Run the broker. A failure is reported after all earlier log lines."""
    from broker.logging import logs
    from broker.logging.logs import log

    # Several nodes share one standard error, so each log line has the node's id.
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


def serve_tests(config: Config, options: argparse.Namespace) -> int:
    """Run clusters that a test controls."""
    import gc

    from broker.logging import logs

    several = wants_supervisor(config)
    if not several:
        gc.disable()  # imports and the start make no garbage
    logs.configure(config.log_level, config.log_format)
    try:
        from cli.control.serving import serve_controlled

        with prepared_config(config) if several else nullcontext(config) as ready:
            return serve_controlled(ready, options, node_arguments(options))
    finally:
        logs.close()


@contextmanager
def prepared_config(config: Config) -> Iterator[Config]:
    """The configuration, with a temporary data directory if the profile wants one. The directory's name has the process id: that
    identifies the owner of a directory that was left behind.
    """
    if not config.temporary_data:
        yield config
        return
    import tempfile

    # Name the folder: otherwise tempfile tries folders by creating a file, which a signal could leave behind.
    directory = tempfile.mkdtemp(prefix=f"tenure-{config.profile}-{os.getpid()}-", dir=os.environ.get("TMPDIR") or "/tmp")
    try:
        yield replace(config, data_directory=directory)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def reserve_standard_descriptors() -> None:
    """Open /dev/null for closed standard descriptors: otherwise the next opened file could be descriptor 2 and receive log lines."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(descriptor, True)
    os.close(descriptor)


def print_problems(*problems: str) -> None:
    """Print one line for each problem. As with log lines, this waits for no reader: a stuck pipe cannot block the end of the process.

    A node prints to its supervisor, which prints a problem that several nodes have only once.
    """
    sink = LineSink(1 if SUPERVISED else 2, lambda count: b"")
    for problem in problems:
        sink.write(f"tenure: {hide(readable(problem))}\n".encode("utf-8", "backslashreplace"))
    sink.close()
