"""A suite of tests as a project has it, each with a round trip by kafka-python, timed: `python -m tests.testing.suite --tests 20`.

With Tenure each test has a cluster of its own; with Apache Kafka all share one broker, started once for the run from its jars as a container starts it,
and each test has names of its own. The table is that of docs/testcontainers.md. Without Java or Kafka's jars the row of Kafka is left out.
"""

from __future__ import annotations

import argparse
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from tests.oracle import KAFKA_VERSION, find_jars
from tests.running import ROOT, environment

SECONDS = 900

ROUND_TRIP = '''
import pytest
from kafka import KafkaConsumer, KafkaProducer


def round_trip(topic, group, settings):
    producer = KafkaProducer(**settings)
    producer.send(topic, b"7").get(60)
    producer.close()
    consumer = KafkaConsumer(topic, group_id=group, auto_offset_reset="earliest", consumer_timeout_ms=60_000, **settings)
    assert next(consumer).value == b"7"
    consumer.commit()
    consumer.close()
'''
TENURE = '''

@pytest.mark.parametrize("number", range({count}))
@pytest.mark.kafka(topics={{"orders": 1}})
def test_an_order_arrives(kafka, number):
    assert kafka.groups() == []
    round_trip("orders", "billing", kafka.clients.kafka_python())
'''
KAFKA = '''
from uuid import uuid4

from kafka.admin import KafkaAdminClient, NewTopic

from tests.kafka_process import kafka


@pytest.fixture(scope="session")
def settings():
    with kafka(group_initial_rebalance_delay_ms="0", offsets_topic_num_partitions="1") as port:
        yield {{"bootstrap_servers": f"127.0.0.1:{{port}}", "reconnect_backoff_ms": 20, "reconnect_backoff_max_ms": 200, "retry_backoff_ms": 20}}


@pytest.mark.parametrize("number", range({count}))
def test_an_order_arrives(settings, number):
    topic = f"orders-{{uuid4()}}"
    admin = KafkaAdminClient(**settings)
    admin.create_topics([NewTopic(topic, 1, 1)])
    admin.close()
    round_trip(topic, f"billing-{{uuid4()}}", settings)
'''


class Timing(NamedTuple):
    passed: int
    seconds: float
    cpu_seconds: float  # of pytest, its workers and the broker
    output: str


def run(text: str, count: int, *options: str) -> Timing:
    """Run a suite of `count` tests in an empty folder, by a pytest of its own."""
    with tempfile.TemporaryDirectory(prefix="tenure-suite-") as name:
        folder = Path(name)
        (folder / "pytest.ini").write_text("[pytest]\naddopts = -p pytest_tenure.plugin --strict-markers -p no:cacheprovider -p no:randomly\n")
        (folder / "test_orders.py").write_text(ROUND_TRIP + text.format(count=count))
        inherited = environment()
        inherited["PYTHONPATH"] = os.pathsep.join([inherited["PYTHONPATH"], str(ROOT / "pytest-tenure"), str(ROOT)])
        inherited.pop("PYTHONWARNINGS", None)
        before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
        command = [sys.executable, "-P", "-m", "pytest", "-q", f"--rootdir={folder}", *options]
        done = subprocess.run(command, cwd=folder, env=inherited, capture_output=True, text=True, timeout=SECONDS, check=False, stdin=subprocess.DEVNULL)
        seconds, after = time.monotonic() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    found = re.search(r"(\d+) passed", done.stdout)
    return Timing(int(found[1]) if found and done.returncode == 0 else 0, seconds, cpu, done.stdout + done.stderr)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.testing.suite", description="Time a suite of tests with Tenure and with Apache Kafka.")
    parser.add_argument("--tests", type=int, nargs="+", default=[1, 20, 200])
    parser.add_argument("--workers", type=int, default=0, help="of pytest-xdist; 0: without it")
    options = parser.parse_args(arguments)
    workers = ["-n", str(options.workers)] if options.workers else []
    suites = {"Tenure, a cluster for each test": TENURE}
    jars = find_jars()
    if isinstance(jars, str):
        print(f"without Kafka: {jars}")
    elif not workers:  # each worker would start its own
        suites[f"Apache Kafka {KAFKA_VERSION}, one for all tests"] = KAFKA
    print("| | tests | seconds | processor seconds |\n|---|---|---|---|")
    failed = False
    for count in options.tests:
        for name, text in suites.items():
            timing = run(text, count, *workers)
            if timing.passed != count:
                print(timing.output, file=sys.stderr)
                failed = True
            print(f"| {name} | {timing.passed} | {timing.seconds:.1f} | {timing.cpu_seconds:.1f} |", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
