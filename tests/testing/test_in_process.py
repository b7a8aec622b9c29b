"""A broker in a thread of the test's own process: real sockets, and nothing of the process changed."""

from __future__ import annotations

import gc
import logging
import os
import resource
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from broker.logging.logs import log
from tenure.testing import AsyncBroker, Broker, ControlError
from tenure.testing.in_process import PACKAGES as IMPORTED
from tests.running import PACKAGES, environment
from tests.support.controlled import code_under_test
from tests.testing.groups import Static


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(in_process=True, topics={"orders": 2}, settings={"group.max.size": 1}) as kafka:
        assert isinstance(kafka, Broker)
        yield kafka


def test_it_has_all_verbs_and_other_clusters(broker: Broker) -> None:
    first, second = Static(broker, "billing", "billing-1"), Static(broker, "billing", "billing-2")
    assert (first.join(), second.join()) == (0, 81)
    broker.group("billing").member(instance="billing-1").expire()
    assert broker.group("billing").last_rebalance.cause == "session-expired"
    broker.write("orders", "a")
    broker.kill()
    assert [record["value"] for record in broker.records("orders")] == ["a"]
    with broker.cluster(topics={"refunds": 1}) as other:
        assert (other.topics(), broker.topics()) == ({"refunds": 1}, {"orders": 2})
    first.close()
    second.close()


def state_of_process() -> dict[str, Any]:
    return {
        "signals": {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)},
        "blocked": signal.pthread_sigmask(signal.SIG_BLOCK, []),
        "collecting": gc.isenabled(),
        "thresholds": gc.get_threshold(),
        "files": resource.getrlimit(resource.RLIMIT_NOFILE),
        "handlers": list(logging.getLogger().handlers),
        "level": logging.getLogger().level,
        "log": (log.sink, log.level_name),
    }


def test_the_process_stays_the_application_s(capfd: pytest.CaptureFixture[str]) -> None:
    before, frozen = state_of_process(), gc.get_freeze_count()
    with Broker(in_process=True) as one, Broker(in_process=True) as other:
        during = state_of_process()
        assert gc.get_freeze_count() <= frozen  # what others froze may end
        one.fault(api="ApiVersions", drop=True)
        assert other.control.get("/v1/clusters/default/faults") == {"faults": []}
    assert during | {"log": None} == before | {"log": None}
    assert state_of_process() == before
    assert tuple(capfd.readouterr()) == ("", "")
    assert not [thread for thread in threading.enumerate() if thread.name == "tenure"]


def test_its_warnings_are_kept(broker: Broker) -> None:
    member = Static(broker, "billing", "billing-1")
    assert member.join() == 0
    with broker.fault(api="OffsetCommit", log="full"):
        assert member.commit("orders", 1) != 0
    assert any("log suspended" in line for line in broker.log_lines())
    member.close()


def test_its_own_thread_cannot_wait_for_it(broker: Broker) -> None:
    refused: list[BaseException] = []
    done = threading.Event()

    def ask() -> None:
        try:
            broker.topics()
        except RuntimeError as error:
            refused.append(error)
        done.set()

    loop = broker.process._host._loop  # type: ignore[union-attr]
    loop.call_soon_threadsafe(ask)
    assert done.wait(10)
    assert "would wait for itself" in str(refused[0])


@pytest.mark.parametrize("in_process", [True, False])
def test_a_forked_child_is_refused_and_ends_nothing(in_process: bool) -> None:
    with code_under_test():
        broker = Broker(in_process=in_process)
    with broker:
        child = os.fork()
        if not child:
            code = 1
            try:
                try:
                    broker.topics()
                except RuntimeError as error:
                    code = 0 if "was forked" in str(error) else 2
                broker.close()
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert broker.topics() == {}


def test_threads_may_share_it(broker: Broker) -> None:
    def work(number: int) -> int:
        broker.topic(f"topic-{number}", 1)
        for value in range(10):
            broker.write(f"topic-{number}", str(value))
        fault = broker.fault(api="Fetch", client_id=f"client-{number}", drop=True, may_not_fire=True)
        fault.remove()
        return len(broker.records(f"topic-{number}"))

    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(work, range(8))) == [10] * 8
    assert broker.end_faults() == []


def test_wrong_settings_are_named() -> None:
    from tenure.testing import NoBroker

    with pytest.raises(NoBroker, match=r"group.max.sise"):
        Broker(in_process=True, settings={"group.max.sise": 1})


def test_a_stopped_one_does_not_answer() -> None:
    broker = Broker(in_process=True)
    broker.close()
    broker.close()
    assert not broker.process.running
    with pytest.raises((ConnectionError, ControlError)):
        broker.topics()


@pytest.mark.asyncio
async def test_beside_the_loop_of_the_test() -> None:
    async with AsyncBroker(in_process=True) as kafka:
        await kafka.topic("orders", 3)
        assert await kafka.topics() == {"orders": 3}


def test_a_directory_survives(tmp_path: Path) -> None:
    with Broker(in_process=True, data=tmp_path, topics={"orders": 1}) as kafka:
        kafka.write("orders", "a")
    with Broker(in_process=True, data=tmp_path) as kafka:
        assert [record["value"] for record in kafka.records("orders")] == ["a"]


# In a process of its own: what has been imported, and what the application's own packages are called.

LOADED = """
import sys
from tenure.testing import Broker
before = set(sys.modules)
with Broker(in_process=True, topics={"orders": 1}) as kafka:
    kafka.write("orders", "a")
    kafka.group("billing").history
files = {name: getattr(sys.modules[name], "__file__", None) or "" for name in set(sys.modules) - before}
print(*sorted({name.partition(".")[0] for name, file in files.items() if file.startswith(sys.argv[1]) and "site-packages" not in file}))
"""
HIDDEN = """
import sys
from tenure.testing import Broker, NoBroker
sys.path[:] = [sys.argv[1], *(path for path in sys.path if path != sys.argv[2])]  # as where a wheel is installed
try:
    Broker(in_process=True)
except NoBroker as error:
    print(error)
import storage
print(storage.MINE)
"""
EXIT = """
from tenure.testing import Broker
kafka = Broker(in_process=True, topics={"orders": 1})
kafka.write("orders", "a")
print("end")
"""


def run(code: str, *arguments: str) -> str:
    done = subprocess.run([sys.executable, "-P", "-c", code, *arguments], env=environment(), capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.mark.once
def test_the_names_that_it_imports_are_known() -> None:
    loaded = set(run(LOADED, str(PACKAGES)).split()) - {"tenure"}
    assert loaded == set(IMPORTED)


@pytest.mark.once
def test_a_package_of_the_application_is_not_hidden(tmp_path: Path) -> None:
    (tmp_path / "storage").mkdir()
    (tmp_path / "storage" / "__init__.py").write_text("MINE = 'mine'\n")
    lines = run(HIDDEN, str(tmp_path), str(PACKAGES)).splitlines()
    assert "needs the name 'storage'" in lines[0]
    assert lines[1] == "mine"


@pytest.mark.once
def test_a_process_that_ends_ends_it() -> None:
    begin = time.monotonic()
    assert run(EXIT) == "end\n"
    assert time.monotonic() - begin < 30
