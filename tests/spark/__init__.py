"""Tests with Apache Spark's Kafka connector, beside another client."""

import pytest

pytest.importorskip("confluent_kafka", reason="needs confluent_kafka, which has no wheel for this Python yet")
