"""Frameworks over Kafka's clients, each with the small program that its documentation begins with, and one fault that a service must survive."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tenure.testing import Cluster
from tests.running import environment
from tests.support.cache import CACHE, Unavailable, cached

pytestmark = [pytest.mark.once, pytest.mark.clients]

FETCH_SECONDS = 90  # a test may take 120
SECONDS = 60.0


class Framework(NamedTuple):
    requirement: str
    program: str  # prints `handled ORDER`
    fault: dict[str, Any]
    handled: tuple[str, ...]
    arguments: tuple[str, ...] = ()
    group: str = "billing"


FASTSTREAM = '''
import asyncio
import sys

from faststream import AckPolicy, FastStream
from faststream.confluent import KafkaBroker

broker = KafkaBroker(sys.argv[1])


@broker.subscriber("orders", group_id="billing", auto_offset_reset="earliest", ack_policy=AckPolicy.ACK)
async def handle(order: str) -> None:
    print("handled", order, flush=True)


asyncio.run(FastStream(broker).run())
'''
QUIX = '''
import sys

from quixstreams import Application

app = Application(broker_address=sys.argv[1], consumer_group="billing", auto_offset_reset="earliest", commit_every=1)
orders = app.dataframe(app.topic("orders", value_deserializer="string"))
orders.update(lambda order: print("handled", order, flush=True))
app.run()
'''
FAUST = '''
import sys

import faust

app = faust.App("billing", broker=f"kafka://{sys.argv.pop(1)}", topic_allow_declare=False, topic_disable_leader=True)
orders = app.topic("orders", value_serializer="raw")


@app.agent(orders)
async def handle(stream):
    async for order in stream:
        print("handled", order.decode(), file=sys.__stdout__, flush=True)  # a worker makes log lines of sys.stdout


app.main()
'''
CELERY = '''
import sys

from celery import Celery

app = Celery("billing", broker=f"confluentkafka://{sys.argv[1]}")
app.conf.update(task_default_queue="orders", broker_connection_retry_on_startup=True, worker_redirect_stdouts=False)


@app.task(name="handle")
def handle(order):
    print("handled", order, flush=True)


for number in range(3):
    handle.delay(f"order-{number}")
app.worker_main(["worker", "--pool", "solo", "--without-gossip", "--without-mingle", "--without-heartbeat", "--loglevel", "ERROR"])
'''
ORDERS = ("order-0", "order-1", "order-2")
FRAMEWORKS = {
    # The commit was stored: nothing is handled twice.
    "faststream": Framework("faststream[confluent]==0.7.8", FASTSTREAM, {"api": "OffsetCommit", "group": "billing", "error": "REQUEST_TIMED_OUT", "apply": "before"}, ORDERS),
    # The coordinator is not there yet.
    "quix": Framework("quixstreams==3.28.1", QUIX, {"api": "FindCoordinator", "group": "billing", "error": "COORDINATOR_NOT_AVAILABLE", "count": 2}, ORDERS),
    # The leader of the partition moved.
    "faust": Framework("faust-streaming==0.15.3", FAUST, {"api": "Fetch", "topic": "orders", "error": "NOT_LEADER_OR_FOLLOWER"}, ORDERS, ("worker", "--without-web")),
    # The task was stored, its producer hears of a timeout and sends it again: it is done twice.
    "celery": Framework(
        "celery==5.7.0 kombu[confluentkafka]==5.7.0",
        CELERY,
        {"api": "Produce", "topic": "orders", "error": "REQUEST_TIMED_OUT", "apply": "before"},
        ("order-0", *ORDERS),
        group="orders-consumer-group",
    ),
}


def installed(name: str) -> Path:
    """A folder with the framework and its dependencies; skips the test where it cannot be installed."""
    requirement = FRAMEWORKS[name].requirement
    version = f"{sys.version_info.major}.{sys.version_info.minor}"

    def install(folder: Path) -> Path:
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--only-binary=:all:", "--target", str(folder / "packages"), *requirement.split()]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=FETCH_SECONDS, check=False, stdin=subprocess.DEVNULL)
        except subprocess.TimeoutExpired:
            raise Unavailable(f"{requirement} was not installed after {FETCH_SECONDS} s") from None
        if done.returncode != 0:
            raise Unavailable(f"{requirement} cannot be installed here: {done.stderr.strip()[-200:]}")
        return folder / "packages"

    try:
        return cached(CACHE / f"{name}-{requirement.rpartition('==')[2]}-{version}", install)
    except Unavailable as reason:
        pytest.skip(str(reason))


@contextmanager
def running(framework: Framework, packages: Path, folder: Path, bootstrap: str) -> Iterator[Callable[[], str]]:
    """The program as a process; yields what reads its output up to now."""
    (folder / "app.py").write_text(framework.program)
    plain = {name: value for name, value in environment().items() if not name.startswith("PYTHON")} | {"PYTHONPATH": str(packages)}
    output = folder / "output"
    with output.open("wb") as written:
        command = [sys.executable, "app.py", bootstrap, *framework.arguments]
        process = subprocess.Popen(command, cwd=folder, env=plain, stdin=subprocess.DEVNULL, stdout=written, stderr=written)
        try:
            yield output.read_text
        finally:
            process.kill()
            process.wait(30)


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_a_service_survives_a_fault(kafka: Cluster, tmp_path: Path, name: str) -> None:
    framework = FRAMEWORKS[name]
    packages = installed(name)
    kafka.topic("orders")
    if name != "celery":
        kafka.write("orders", *ORDERS)
    fault = kafka.fault(framework.fault)
    with running(framework, packages, tmp_path, kafka.bootstrap) as read_output:
        try:
            fault.wait(framework.fault.get("count", 1), timeout=SECONDS)
            kafka.wait_committed(framework.group, "orders", offset=len(framework.handled), timeout=SECONDS)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{kafka.story()}\n{read_output()}") from error
        handled = [line.removeprefix("handled ") for line in read_output().splitlines() if line.startswith("handled ")]
    assert sorted(handled) == sorted(framework.handled), read_output()
