"""`make nodes-test ARGS="--rounds 100 --seed 7"`: kills nodes under real clients and reports broken promises; exit code 1 if there are any.

`ARGS="--torture --minutes 10"`: random faults of many kinds instead (tests/nodes/torture).
"""

from __future__ import annotations

import argparse
import random
import shutil
import statistics
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

import confluent_kafka
import pytest

from tests.clients.members import (
    AIOKAFKA,
    CONFLUENT,
    JAVA_CLIENT,
    KAFKA_PYTHON,
    MEMBER_PROBE,
    ClientKind,
    MemberProcess,
    compiled_probe,
    java_host,
)
from tests.nodes.campaign import Campaign
from tests.nodes.torture.campaign import Torture
from tests.oracle import KAFKA_VERSION, kafka_jars

ROUNDS = 8
MEDIAN_SECONDS_MAX = 1.0


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="nodes", description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"kills; default: {ROUNDS}")
    parser.add_argument("--seed", type=int, default=None, help="the same seed kills the same nodes")
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--torture", action="store_true", help="random faults under clients that compare everything with what was promised")
    parser.add_argument("--minutes", type=float, default=1.0, help="of --torture; default: 1")
    parser.add_argument("--store", choices=("directory", "jetstream"), default="directory", help="of --torture")
    parser.add_argument("--servers", type=int, default=1, help="NATS servers of --torture --store jetstream; default: 1")
    parser.add_argument("--keep", action="store_true", help="keep the data directory and the log lines")
    options = parser.parse_args(arguments)
    seed = random.randrange(1 << 32) if options.seed is None else options.seed
    folder = Path(tempfile.mkdtemp(prefix="tenure-nodes-"))
    if options.torture:
        return torture(folder, seed, options)
    kinds: list[ClientKind] = [KAFKA_PYTHON, AIOKAFKA, CONFLUENT]
    classes = jars = None
    try:
        jars = kafka_jars()
        classes = compiled_probe(jars)
        kinds.append(JAVA_CLIENT)
    except (pytest.skip.Exception, OSError) as missing:
        tell(f"nodes: without Kafka's Java client: {missing}")

    def jvm(program: str = MEMBER_PROBE) -> MemberProcess:
        assert jars is not None
        assert classes is not None
        return java_host(jars, classes, folder / f"{program}.errors", program)

    tell(f"nodes: {options.rounds} kills of {options.nodes} nodes, seed {seed}, consumers and producers: {', '.join(map(version_of, kinds))}")
    campaign = Campaign(folder, seed, kinds, tell, options.nodes, jvm=jvm)
    try:
        campaign.run(options.rounds)
        if code := campaign.nodes.stop():
            campaign.violations.append(f"the supervisor ended with exit code {code}")
        tell(campaign.summary())
        if statistics.median(kill.service_seconds for kill in campaign.kills) > MEDIAN_SECONDS_MAX:
            campaign.violations.append(f"the median of seconds without service is above {MEDIAN_SECONDS_MAX:g}")
    except BaseException:
        options.keep = True
        raise
    finally:
        campaign.close()
        options.keep |= bool(campaign.violations)
        if options.keep and campaign.nodes.supervisor is not None:
            (folder / "lines").write_text(campaign.nodes.supervisor.errors())
            tell(f"nodes: the data directory and the log lines are in {folder}")
    for problem in campaign.violations:
        tell(f"BROKEN {problem}")
    if not options.keep:
        shutil.rmtree(folder)
    return bool(campaign.violations)


def torture(folder: Path, seed: int, options: argparse.Namespace) -> int:
    run = Torture(folder, seed, options.minutes * 60, tell, options.store == "jetstream", options.servers)
    try:
        run.run()
    except BaseException:
        options.keep = True
        raise
    finally:
        options.keep |= bool(run.violations)
        if options.keep:
            (folder / "lines").write_text("\n".join(run.nodes.texts()))
            (folder / "violations").write_text("\n".join(f"{kind}: {text}" for kind, found in run.violations.items() for text in found))
            tell(f"torture: the data directory, the log lines and all violations are in {folder}")
        run.close()
    if not options.keep:
        shutil.rmtree(folder)
    for kind, count in run.summary().most_common():
        tell(f"BROKEN {count} times: {kind}")
    if run.violations:
        tell(f"torture: seed {seed}, the first violation after {run.first_violation:.1f} s")
    return bool(run.violations)


def version_of(kind: ClientKind) -> str:
    if kind is JAVA_CLIENT:
        return f"{kind} {KAFKA_VERSION}"
    library = f" with librdkafka {confluent_kafka.libversion()[0]}" if kind is CONFLUENT else ""
    return f"{kind} {version(kind.name)}{library}"


def tell(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
