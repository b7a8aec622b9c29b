"""`tenure serve --test-control HOST:PORT`: serves clusters that tests control."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
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


def serve_controlled(config: Config, options: argparse.Namespace, arguments: Sequence[str]) -> int:
    """Serve until a signal, and return the exit code. `arguments`: of all nodes, if there are several. Raises StartError."""
    try:
        host, port = parse_endpoint(options.test_control, lowest_port=0)
    except ValueError as error:
        raise StartError(f"--test-control {options.test_control}: {error}", ExitCode.CONFIG) from error
    if not config.store.backend.one_machine or "node.id" in config.given:
        raise StartError("--test-control is for the nodes of one process, with a directory or in memory", ExitCode.CONFIG)
    if config.data_directory and not config.temporary_data and not options.test_control_on_data:
        raise StartError(
            f"--test-control changes what is in {config.data_directory}: start it with --profile test, or add --test-control-on-data",
            ExitCode.CONFIG,
        )
    told = os.environ.get(TOKEN)
    token, anywhere = told or new_token(), options.test_control_anywhere
    if config.cluster_nodes > 1:
        from cli.control.nodes import serve_nodes

        return serve_nodes(config, arguments, host or "127.0.0.1", port, token, read_history, anywhere=anywhere, version=VERSION)
    controlled = Host(config, token, read_history, in_memory=not config.data_directory, anywhere=anywhere, version=VERSION, token_is_drawn=not told)
    return controlled.serve(host or "127.0.0.1", port)
