"""What a test pays for its cluster, in processor time beside that of a fixed loop in the same moment: a busy machine slows down both."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tenure.testing import Broker, Cluster
from tests.running import ROOT, environment
from tests.testing.groups import Static

pytestmark = [pytest.mark.once, pytest.mark.alone]

LOOP_MS = 12.0  # the loop below on the machine whose milliseconds the goals are
REPEATS = 40


def loop_ms() -> float:
    def once() -> float:
        begin = time.process_time()
        sum(number * number for number in range(200_000))
        return (time.process_time() - begin) * 1000

    return min(once() for _ in range(5))


def cost(work: Callable[[], object], repeats: int = REPEATS) -> float:
    """The milliseconds of a piece of work on the machine of the goals: of all threads of this process, so client and broker."""

    def some() -> float:
        before = loop_ms()
        begin = time.process_time()
        for _ in range(repeats):
            work()
        used = (time.process_time() - begin) * 1000 / repeats
        return used * LOOP_MS / max(before, loop_ms())

    return min(some() for _ in range(3))


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(in_process=True) as kafka:
        assert isinstance(kafka, Broker)
        kafka.cluster().close()
        gc.collect()
        gc.freeze()  # as the process of a broker does: what pytest has imported is not walked for each cluster
        yield kafka
        gc.unfreeze()


def test_a_cluster_costs_less_than_five_milliseconds(broker: Broker) -> None:
    made: list[Cluster] = []
    assert cost(lambda: made.append(broker.cluster())) < 5
    for cluster in made:
        cluster.close()


def test_a_reset_costs_less_than_five_milliseconds(broker: Broker) -> None:
    assert cost(broker.reset) < 5


def test_a_fault_costs_less_than_two_milliseconds(broker: Broker) -> None:
    def fault() -> None:
        with broker.fault(api="Fetch", drop=True, may_not_fire=True):
            ...

    assert cost(fault) < 2 * 2  # installed and removed


def test_an_expired_session_is_seen_within_ten_milliseconds(broker: Broker) -> None:
    broker.reset(topics={"orders": 1})
    member = Static(broker, "billing", "billing-1")

    def join() -> None:
        member.id = ""
        assert member.join() == 0

    def expire() -> None:
        join()
        broker.group("billing").member(instance="billing-1").expire()
        assert broker.group("billing").state == "Empty"

    assert cost(expire) < 10
    member.close()


def test_a_broker_in_this_process_starts_in_less_than_fifty_milliseconds(broker: Broker) -> None:
    def start() -> None:
        Broker(in_process=True).close()

    assert cost(start, 5) < 50


def test_the_plugin_is_imported_in_less_than_ten_milliseconds() -> None:
    code = "import time, pytest; begin = time.process_time(); import pytest_tenure.plugin; print((time.process_time() - begin) * 1000)"
    inherited = environment()
    inherited["PYTHONPATH"] = os.pathsep.join([inherited["PYTHONPATH"], str(ROOT / "pytest-tenure")])

    def imported() -> float:
        done = subprocess.run([sys.executable, "-P", "-c", code], env=inherited, capture_output=True, text=True, check=True, timeout=60)
        return float(done.stdout) * LOOP_MS / loop_ms()

    assert min(imported() for _ in range(3)) < 10


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="the processor time of a running child is read from /proc")
def test_a_process_answers_after_four_tenths_of_a_second_of_processor_time() -> None:
    def started() -> float:
        command = [sys.executable, "-P", "-m", "tenure", "serve", "--profile", "test", "--test-control", "127.0.0.1:0"]
        with subprocess.Popen(command, env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as child:
            assert child.stdout is not None
            for line in child.stdout:
                if line.startswith("control "):
                    break
            used = Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()
            child.kill()
        return (int(used[11]) + int(used[12])) * 1000 / os.sysconf("SC_CLK_TCK") * LOOP_MS / loop_ms()

    assert min(started() for _ in range(3)) < 400
