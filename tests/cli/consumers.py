"""Members of groups: processes of `tenure consume`, and objects of its class Member in this process."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from cli.client import Cluster
from cli.records.commits import committed_offsets
from cli.records.fetching import Fetcher
from cli.records.membership import Member, Timeouts
from protocol.messages.describe_groups import DescribedGroup, DescribeGroupsRequest
from tests.running import ROOT, environment, wait_until

TIMES = Timeouts(session=6, rebalance=5, heartbeat=0.05)
SECONDS = 30


@contextmanager
def consuming(bootstrap: str, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process of `tenure consume ARGUMENTS`."""
    command = [sys.executable, "-P", "-m", "tenure", "consume", *arguments, "--bootstrap", bootstrap]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(), cwd=ROOT) as process:
        watchdog = threading.Timer(SECONDS, process.kill)
        watchdog.start()
        try:
            yield process
        finally:
            watchdog.cancel()
            process.kill()


def stop(process: subprocess.Popen[bytes], number: signal.Signals) -> list[tuple[int, int]]:
    """End the process by a signal; returns (partition, offset) of each record that it printed."""
    process.send_signal(number)
    out, err = process.communicate(timeout=SECONDS)
    assert (process.returncode, err) == (0 if number in (signal.SIGINT, signal.SIGTERM) else 128 + number, b"")
    return [(record["partition"], record["offset"]) for record in map(json.loads, out.splitlines())]


def member(cluster: Cluster, group: str, *topics: str, **more: Any) -> Member:
    return Member(cluster.separate_client(), group, topics or (group,), TIMES, **more)


def described(cluster: Cluster, group: str) -> DescribedGroup:
    group_reply: DescribedGroup = cluster.send_to_coordinator(group, DescribeGroupsRequest([group])).groups[0]
    return group_reply


def await_members(cluster: Cluster, group: str, members: int) -> DescribedGroup:
    """Wait until the group is Stable with `members` members, or, for 0, Empty."""

    def settled() -> DescribedGroup | None:
        now = described(cluster, group)
        return now if now.group_state == ("Stable" if members else "Empty") and len(now.members) == members else None

    return wait_until(settled, SECONDS)


def await_committed(cluster: Cluster, group: str, topic: str, records: int) -> None:
    """Wait until the committed offsets of the four partitions add up to `records`."""
    partitions = [(topic, partition) for partition in range(4)]
    wait_until(lambda: sum(committed_offsets(cluster, group, partitions).values()) >= records, SECONDS)


def poll_until(fetcher: Fetcher, records: int) -> list[str]:
    values: list[str] = []

    def enough() -> bool:
        values.extend((record.record.value or b"").decode() for chunk in fetcher.poll(0.2) for record in chunk.records)
        return len(values) >= records

    wait_until(enough, pause=0)
    return values
