"""kcat (librdkafka as Debian has it) with this broker: listing, producing, consuming, and static members of a balanced group."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from tests.cli.admin import Admin
from tests.running import Broker, broker

pytestmark = [pytest.mark.clients, pytest.mark.skipif(shutil.which("kcat") is None, reason="needs kcat (Debian: apt-get install kcat)")]
SECONDS = 30


@pytest.fixture(scope="module")
def started() -> Iterator[Broker]:
    with broker("--profile", "test") as running:
        yield running


@pytest.fixture
def address(started: Broker) -> str:
    return f"127.0.0.1:{started.port}"


def kcat(*arguments: str, stdin: str = "", code: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(["kcat", *arguments], input=stdin, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == code, done
    return done


class Member:
    """A kcat in a group; `assignments` has them in order, `values` its records."""

    def __init__(self, address: str, group: str, topic: str, instance: str) -> None:
        settings = [f"group.instance.id={instance}", "session.timeout.ms=30000", "auto.offset.reset=earliest", "partition.assignment.strategy=range"]
        options = [word for setting in settings for word in ("-X", setting)]
        self._process = subprocess.Popen(
            ["kcat", "-b", address, "-G", group, "-u", *options, topic], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self.assignments: list[list[int]] = []
        self.values: list[str] = []
        self._readers = [threading.Thread(target=reads, daemon=True) for reads in (self._read_values, self._read_assignments)]
        for reader in self._readers:
            reader.start()

    def _read_values(self) -> None:
        assert self._process.stdout
        self.values.extend(line.rstrip("\n") for line in self._process.stdout)

    def _read_assignments(self) -> None:
        assert self._process.stderr
        for line in self._process.stderr:
            if seats_before := re.match(r"% Group .* assigned: (.*)", line):
                self.assignments.append([int(number) for number in re.findall(r"\[(\d+)\]", seats_before[1])])

    def end(self, signal_number: signal.Signals) -> None:
        self._process.send_signal(signal_number)
        self._process.wait(SECONDS)
        for reader in self._readers:
            reader.join(SECONDS)
        for stream in (self._process.stdout, self._process.stderr):
            assert stream
            stream.close()


@pytest.fixture
def join(address: str) -> Iterator[Callable[..., Member]]:
    members: list[Member] = []

    def join(group: str, topic: str, instance: str) -> Member:
        members.append(Member(address, group, topic, instance))
        return members[-1]

    yield join
    for member in members:
        if member._process.poll() is None:
            member.end(signal.SIGKILL)


def wait_until(attempt: Callable[[], object], describe: Callable[[], object]) -> None:
    end = time.monotonic() + SECONDS
    while not attempt():
        assert time.monotonic() < end, describe()
        time.sleep(0.02)


def test_the_cluster_is_listed(address: str) -> None:
    with Admin(int(address.rpartition(":")[2])) as admin:
        admin.create_topic("listed", (1, 0), {})
    text = kcat("-b", address, "-L", "-t", "listed").stdout
    assert f"broker 1 at {address} (controller)" in text
    assert 'topic "listed" with 2 partitions' in text
    document = json.loads(kcat("-b", address, "-L", "-J", "-t", "listed").stdout)
    assert document["controllerid"] == 1
    assert [part["leader"] for part in document["topics"][0]["partitions"]] == [1, 1]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_kcat_consumes_the_produced_records(codec: str, address: str) -> None:
    topic = f"passed.{codec}"
    lines = [f"key-{number}:{'value ' * 50}{number}" for number in range(200)]
    kcat("-b", address, "-P", "-t", topic, "-K:", "-z", codec, "-H", "from=here", stdin="\n".join(lines) + "\n")
    read = kcat("-b", address, "-C", "-t", topic, "-o", "beginning", "-e", "-q", "-f", "%k:%s\n").stdout
    assert read.splitlines() == lines
    first = json.loads(kcat("-b", address, "-C", "-t", topic, "-o", "beginning", "-c", "1", "-q", "-J").stdout)
    assert (first["offset"], first["key"], first["headers"]) == (0, "key-0", ["from", "here"])


def test_a_batch_is_stored_as_it_was_compressed(address: str) -> None:
    """librdkafka before 2.1 compresses only for brokers that offer Produce from version 0."""
    for codec in ("none", "snappy"):
        kcat("-b", address, "-P", "-t", f"sized.{codec}", "-z", codec, stdin="again and again " * 1000 + "\n")
    with Admin(int(address.rpartition(":")[2])) as admin:
        (folder,) = admin.ask(DescribeLogDirsRequest(), 1).results
    sizes = {topic.name: sum(partition.partition_size for partition in topic.partitions) for topic in folder.topics}
    assert sizes["sized.none"] > 16_000 > 4_000 > sizes["sized.snappy"]


def test_kcat_begins_at_the_offset_of_its_option(address: str) -> None:
    with Admin(int(address.rpartition(":")[2])) as admin:
        admin.create_topic("places", (10, 10), {1: 4})
    base = 1_605_697_600_000

    def read(*arguments: str) -> list[str]:
        return kcat("-b", address, "-C", "-t", "places", "-e", "-q", *arguments).stdout.split()

    assert read("-p", "0", "-o", "7") == ["7", "8", "9"]
    assert read("-p", "0", "-o", "-2") == ["8", "9"]
    assert read("-p", "1", "-o", "beginning") == ["4", "5", "6", "7", "8", "9"]
    assert read("-p", "1", "-o", f"s@{base + 7000}") == ["7", "8", "9"]
    assert read("-p", "0", "-o", f"s@{base + 2000}", "-o", f"e@{base + 4000}") == ["2", "3"]
    for time_option, offset in ((str(base + 5000), 5), ("-1", 10), ("-2", 4), (str(base + 99_000), -1)):
        partition = 0 if offset == 5 else 1
        assert kcat("-b", address, "-Q", "-t", f"places:{partition}:{time_option}").stdout == f"places [{partition}] offset {offset}\n"


def test_static_members_keep_their_seats_when_they_are_restarted(join: Callable[..., Member], address: str) -> None:
    with Admin(int(address.rpartition(":")[2])) as admin:
        admin.create_topic("seats", (10, 10), {})
    first = join("seated", "seats", "one")
    wait_until(lambda: first.assignments, lambda: first.assignments)
    second = join("seated", "seats", "two")
    wait_until(lambda: second.assignments and len(first.assignments) > 1, lambda: (first.assignments, second.assignments))
    assert (first.assignments[-1], second.assignments) == ([0], [[1]])
    seats_before = len(first.assignments)
    for signal_number in (signal.SIGTERM, signal.SIGKILL):
        second.end(signal_number)
        second = join("seated", "seats", "two")
        wait_until(partial(bool, second.assignments), partial(list, second.assignments))
        assert second.assignments == [[1]]
    assert len(first.assignments) == seats_before  # there was no rebalance
    kcat("-b", address, "-P", "-t", "seats", "-p", "1", stdin="after all\n")
    wait_until(lambda: "after all" in second.values, lambda: second.values)


def test_a_group_continues_after_its_committed_offsets(address: str) -> None:
    with Admin(int(address.rpartition(":")[2])) as admin:
        admin.create_topic("gone.on", (3,), {})
        group = ["-G", "going", "-X", "group.instance.id=one", "-X", "auto.offset.reset=earliest", "-e", "-q", "gone.on"]
        assert kcat("-b", address, *group).stdout == "0\n1\n2\n"
        assert admin.committed("going") == {("gone.on", 0): 3}
        kcat("-b", address, "-P", "-t", "gone.on", stdin="more\n")
        assert kcat("-b", address, *group).stdout == "more\n"


def test_transactions_are_refused_with_the_reason(address: str) -> None:
    refused = kcat("-b", address, "-P", "-t", "none", "-X", "transactional.id=x", stdin="x\n", code=1)
    assert "transactions are not served by this broker" in refused.stderr
