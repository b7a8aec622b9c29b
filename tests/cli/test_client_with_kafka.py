"""The client beside Apache Kafka itself: its secured listeners, its controller, and a cluster of several brokers."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import Tenure
from tests.kafka_process import free_ports, kafka_folder, running_kafka
from tests.oracle import JAVA

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


@pytest.fixture(scope="module")
def ports() -> Iterator[dict[str, int]]:
    """One Kafka with a listener of each kind."""
    with kafka_folder() as (folder, port):
        make_key(folder)
        names = ("SASL", "TLS", "BOTH")
        found = dict(zip(names, free_ports(3), strict=True))
        properties = folder / "server.properties"
        text = properties.read_text()
        more = "".join(f",{name}://127.0.0.1:{number}" for name, number in found.items())
        lines = [line + more if line.startswith(("listeners=", "advertised.listeners=")) else line for line in text.splitlines()]
        controller = next(line for line in lines if line.startswith("controller.quorum.voters=")).rpartition(":")[2]
        properties.write_text("\n".join(lines) + SECURED.format(folder=folder))
        with running_kafka(folder, port):
            yield found | {"PLAINTEXT": port, "CONTROLLER": int(controller)}


def make_key(folder: Path) -> None:
    tool = Path(JAVA[0]).with_name("keytool")
    command = [str(tool), "-genkeypair", "-keystore", "keys.p12", "-storetype", "PKCS12", "-storepass", "secret", "-alias", "k", "-keyalg", "EC"]
    subprocess.run([*command, "-dname", "CN=127.0.0.1"], cwd=folder, check=True, capture_output=True, timeout=60)


@pytest.mark.parametrize(
    ("listener", "line"),
    [
        ("TLS", "wants TLS, which this command does not speak: name a PLAINTEXT listener"),
        ("BOTH", "wants TLS, which this command does not speak: name a PLAINTEXT listener"),
        ("SASL", "wants SASL (PLAIN, SCRAM-SHA-512), which this command does not speak: name a PLAINTEXT listener"),
        ("CONTROLLER", "is no broker (a KRaft controller, perhaps): name a listener for clients"),
    ],
)
def test_what_a_listener_wants_is_one_line_at_once(ports: dict[str, int], tenure: Tenure, listener: str, line: str) -> None:
    begin = time.monotonic()
    result = tenure("cluster", "--bootstrap", f"127.0.0.1:{ports[listener]}", "--timeout", "8")
    assert time.monotonic() - begin < 8
    assert result == (69, "", f"tenure: 127.0.0.1:{ports[listener]} {line}\n")
