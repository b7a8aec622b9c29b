"""Apache Spark, and a client from outside."""

import pytest

pytest.importorskip("confluent_kafka", reason="needs confluent_kafka, which has no wheel for this Python yet")
