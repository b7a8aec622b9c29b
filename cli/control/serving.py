"""`tenure serve --test-control HOST:PORT`: serves clusters that tests control."""

from __future__ import annotations

import argparse
import os
from typing import Any

from broker.control.host import Host, new_token
from broker.runtime.start import ExitCode, StartError
from broker.settings.config import Config
from broker.settings.endpoints import parse_endpoint
from cli import VERSION

TOKEN = "TENURE_TEST_TOKEN"


def read_history(bootstrap: str, group: str, since_ms: int | None) -> dict[str, Any]:
    """Imported when the first history is read: a start needs none of it."""
    from cli.control import histories

    return histories.read_history(bootstrap, group, since_ms)


def serve_controlled(config: Config, options: argparse.Namespace) -> int:
    """Serve until a signal, and return the exit code. Raises StartError."""
    try:
        host, port = parse_endpoint(options.test_control, lowest_port=0)
    except ValueError as error:
        raise StartError(f"--test-control {options.test_control}: {error}", ExitCode.CONFIG) from error
    if config.cluster_nodes > 1 or not config.store.backend.single:
        raise StartError("--test-control is for one node with its own directory, or in memory", ExitCode.CONFIG)
    if config.data_directory and not options.test_control_on_data:
        raise StartError(
            f"--test-control changes what is in {config.data_directory}: start it with --profile test, or add --test-control-on-data",
            ExitCode.CONFIG,
        )
    told = os.environ.get(TOKEN)
    in_memory, anywhere = not config.data_directory, options.test_control_anywhere
    controlled = Host(config, told or new_token(), read_history, in_memory=in_memory, anywhere=anywhere, version=VERSION, token_is_drawn=not told)
    return controlled.serve(host or "127.0.0.1", port)
