"""Settings that make each client quick in a test: short pauses, and timeouts that a test can wait for. No client is imported."""

from __future__ import annotations

from typing import Any


class Clients:
    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    def kafka_python(self, **more: Any) -> dict[str, Any]:
        """Of kafka-python, for consumers and producers alike: KafkaConsumer("orders", **kafka.clients.kafka_python(), group_id="billing")."""
        return {
            "bootstrap_servers": self.bootstrap,
            "reconnect_backoff_ms": 20,
            "reconnect_backoff_max_ms": 200,
            "retry_backoff_ms": 20,
            **more,
        }

    def aiokafka(self, **more: Any) -> dict[str, Any]:
        return {"bootstrap_servers": self.bootstrap, "retry_backoff_ms": 20, **more}

    def confluent(self, **more: Any) -> dict[str, Any]:
        """Of confluent-kafka and everything else over librdkafka."""
        return {
            "bootstrap.servers": self.bootstrap,
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 200,
            "retry.backoff.ms": 20,
            "topic.metadata.refresh.fast.interval.ms": 50,
            "broker.address.family": "v4",
            **more,
        }
