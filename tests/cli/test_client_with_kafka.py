"""The client against Apache Kafka: its secured listeners, its controller, and a cluster of several brokers."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import Tenure, with_bootstrap
from tests.kafka_cluster import kafka_cluster
from tests.kafka_process import free_ports, kafka_folder, running_kafka
from tests.oracle import JAVA
from tests.running import wait_until

pytestmark = pytest.mark.kafka

SECURED = """
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT,TLS:SSL,BOTH:SASL_SSL
sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-512
listener.name.sasl.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required user_a="b";
listener.name.both.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required user_a="b";
listener.name.sasl.scram-sha-512.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;
listener.name.both.scram-sha-512.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;
ssl.keystore.location={folder}/keys.p12
ssl.keystore.password=secret
ssl.keystore.type=PKCS12
"""


SECONDS = 60


@pytest.fixture(scope="module")
def ports() -> Iterator[dict[str, int]]:
    """One Kafka with a listener of each security protocol."""
    with kafka_folder() as (folder, port):
        make_key(folder)
        names = ("SASL", "TLS", "BOTH")
        ports_by_name = dict(zip(names, free_ports(3), strict=True))
        properties = folder / "server.properties"
        text = properties.read_text()
        more = "".join(f",{name}://127.0.0.1:{number}" for name, number in ports_by_name.items())
        lines = [line + more if line.startswith(("listeners=", "advertised.listeners=")) else line for line in text.splitlines()]
        controller = next(line for line in lines if line.startswith("controller.quorum.voters=")).rpartition(":")[2]
        properties.write_text("\n".join(lines) + SECURED.format(folder=folder))
        with running_kafka(folder, port):
            yield ports_by_name | {"PLAINTEXT": port, "CONTROLLER": int(controller)}


def make_key(folder: Path) -> None:
    tool = Path(JAVA[0]).with_name("keytool")
    command = [str(tool), "-genkeypair", "-keystore", "keys.p12", "-storetype", "PKCS12", "-storepass", "secret", "-alias", "k", "-keyalg", "EC"]
    subprocess.run([*command, "-dname", "CN=127.0.0.1"], cwd=folder, check=True, capture_output=True, timeout=60)


@pytest.mark.parametrize(
    ("listener", "line"),
    [
        ("TLS", "wants TLS, which this command does not support: name a PLAINTEXT listener"),
        ("BOTH", "wants TLS, which this command does not support: name a PLAINTEXT listener"),
        ("SASL", "wants SASL (PLAIN, SCRAM-SHA-512), which this command does not support: name a PLAINTEXT listener"),
        ("CONTROLLER", "is no broker (a KRaft controller, perhaps): name a listener for clients"),
    ],
)
def test_a_listeners_security_protocol_is_named_in_one_line_at_once(ports: dict[str, int], tenure: Tenure, listener: str, line: str) -> None:
    begin = time.monotonic()
    result = tenure("cluster", "--bootstrap", f"127.0.0.1:{ports[listener]}", "--timeout", "8")
    assert time.monotonic() - begin < 8
    assert result == (69, "", f"tenure: 127.0.0.1:{ports[listener]} {line}\n")


def test_a_cluster_of_three_works_with_one_broker_down(tenure: Tenure) -> None:
    with kafka_cluster(3) as kafka:
        names = [f"127.0.0.1:{port}" for port in kafka.ports]
        wait_until(lambda: len(brokers(with_bootstrap(names[1], tenure))) == 3, SECONDS, pause=0.2)
        assert [(broker["id"], broker["rack"], broker["reachable"]) for broker in brokers(with_bootstrap(names[1], tenure))] == [
            (number, f"rack-{number}", True) for number in (1, 2, 3)
        ]
        created = tenure("topic", "create", "orders", "--partitions", "6", "--replication-factor", "3", "--bootstrap", names[2])
        assert (created.code, created.err) == (0, "")
        groups = [f"group-{number}" for number in range(6)]  # over six partitions of the offsets topic, two on each broker
        for group in groups:
            reset = tenure("group", "offsets", "reset", group, "--to-latest", "--topic", "orders", "--bootstrap", names[0], "--timeout", "30", "--yes")
            assert (reset.code, reset.err) == (0, "")
        listed = json.loads(tenure("group", "list", "--bootstrap", names[1], "--json").out)["groups"]
        assert sorted(group["group"] for group in listed) == groups
        assert tenure("cluster", "--bootstrap", names[1]).out.splitlines()[2].split() == ["controller", "broker", "1"]
        kafka.kill(3)
        dead_first = f"{names[2]},{names[0]}"
        begin = time.monotonic()
        description = tenure("topic", "describe", "orders", "--bootstrap", dead_first, "--timeout", str(SECONDS))
        assert (description.code, description.err) == (0, "")
        assert time.monotonic() - begin < 5, "the command waited until the cluster reported the killed broker as down"
        lines = "".join(f"{number}:{number}\n" for number in range(60))
        sent = tenure("produce", "orders", "--key-separator", ":", "--bootstrap", dead_first, "--timeout", str(SECONDS), stdin=lines)
        assert (sent.code, sent.err, sent.out.splitlines()[0]) == (0, "", "60 records written to orders:")
        described = tenure("group", "describe", *groups, "--bootstrap", dead_first, "--timeout", str(SECONDS))
        assert described.code == 0, described.err
        wait_until(lambda: all(broker["reachable"] == (broker["id"] != 3) for broker in brokers(with_bootstrap(dead_first, tenure))), SECONDS, pause=0.2)
        listing = tenure("cluster", "--bootstrap", dead_first, "--timeout", str(SECONDS))
        assert listing.out.splitlines()[-1].split()[3:5] in (["rack-3", "fenced"], ["rack-3", "not"])


def brokers(client_command: Tenure) -> list[dict[str, object]]:
    listed: list[dict[str, object]] = json.loads(client_command("cluster", "--timeout", "20", "--json").out)["brokers"]
    return listed
