"""Apache Kafka with a listener of each protocol, StandardAuthorizer and users, for the tests of what a client does there."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.kafka_process import CLUSTER_ID, LOGGING, PROPERTIES, free_ports, running_kafka
from tests.oracle import kafka_jars, run_java
from tests.secured.certificates import PASSWORD as KEY_PASSWORD
from tests.secured.certificates import Certificates

ADMIN, LIMITED, PASSWORD = "admin", "limited", "hunter2-of-kafka"
LISTENERS = {"SASL_SSL": "SASL_SSL", "SSL": "SSL", "SASL_PLAINTEXT": "SASL_PLAINTEXT", "TOKENS": "SASL_PLAINTEXT", "SHORT": "SASL_PLAINTEXT", "OPEN_SSL": "SSL"}

SECURED = """
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller},{listeners}
advertised.listeners=PLAINTEXT://127.0.0.1:{port},{listeners}
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,{protocols}
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:ANONYMOUS;User:admin;User:client;User:token
ssl.keystore.location={keystore}
ssl.keystore.password={key_password}
ssl.keystore.type=PKCS12
ssl.truststore.location={ca}
ssl.truststore.type=PEM
listener.name.ssl.ssl.client.auth=required
listener.name.ssl.ssl.principal.mapping.rules=RULE:^.*$/client/
sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512
listener.name.tokens.sasl.enabled.mechanisms=OAUTHBEARER
listener.name.tokens.oauthbearer.sasl.jaas.config=org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;
listener.name.tokens.oauthbearer.sasl.server.callback.handler.class=org.apache.kafka.common.security.oauthbearer.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler
listener.name.short.connections.max.reauth.ms=2000
connection.failed.authentication.delay.ms=100
group.initial.rebalance.delay.ms=0
offsets.topic.num.partitions=3
"""
PLAIN_USERS = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_admin="{password}" user_limited="{password}";'
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required;"


class SecuredKafka(NamedTuple):
    ports: dict[str, int]  # by the listener's name

    def at(self, listener: str) -> str:
        return f"127.0.0.1:{self.ports[listener]}"


@contextmanager
def secured_kafka(certificates: Certificates) -> Iterator[SecuredKafka]:
    kafka_jars()
    with tempfile.TemporaryDirectory(prefix="tenure-kafka-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        port, controller, *more = free_ports(2 + len(LISTENERS))
        ports = dict(zip(LISTENERS, more, strict=True))
        text = PROPERTIES.format(node=1, port=port, controller=controller, folder=folder) + SECURED.format(
            port=port,
            controller=controller,
            listeners=",".join(f"{name}://127.0.0.1:{number}" for name, number in ports.items()),
            protocols=",".join(f"{name}:{protocol}" for name, protocol in LISTENERS.items()),
            keystore=certificates.pkcs12("broker.p12", certificates.broker),
            key_password=KEY_PASSWORD,
            ca=certificates.ca,
        )
        for listener in ("sasl_ssl", "sasl_plaintext", "short"):
            text += f"listener.name.{listener}.plain.sasl.jaas.config={PLAIN_USERS.format(password=PASSWORD)}\n"
            text += "".join(f"listener.name.{listener}.scram-sha-{bits}.sasl.jaas.config={SCRAM}\n" for bits in (256, 512))
        properties = folder / "server.properties"
        properties.write_text(text)
        (folder / "log4j2.properties").write_text(LOGGING)
        users = [f"SCRAM-SHA-{bits}=[name={user},password={PASSWORD}]" for bits in (256, 512) for user in (ADMIN, LIMITED)]
        scram = [part for user in users for part in ("--add-scram", user)]
        run_java("kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", properties, *scram, cwd=folder)
        with running_kafka(folder, port):
            yield SecuredKafka(ports | {"PLAINTEXT": port})
