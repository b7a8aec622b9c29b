"""Real clients."""

import pytest

for name in ("aiokafka", "confluent_kafka"):
    pytest.importorskip(name, reason=f"needs {name}, which has no wheel for this Python yet")
