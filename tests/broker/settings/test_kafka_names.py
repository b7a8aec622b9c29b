from __future__ import annotations

import pytest

from broker.settings.kafka_names import KAFKA_VERSION, KNOWN
from tests.broker.recorded import kafka_names as known_settings
from tests.oracle import kafka_jars

pytestmark = pytest.mark.once


@pytest.mark.kafka
def test_the_list_of_kafka_settings_is_complete() -> None:
    rendered = known_settings.render(known_settings.ask_kafka(kafka_jars()))
    assert rendered == known_settings.TARGET.read_text(), "run python -m tests.broker.recorded.kafka_names"


def test_the_list_of_settings_is_of_the_followed_kafka_version() -> None:
    assert KAFKA_VERSION == "4.3.1"
    assert len(KNOWN) > 360
    assert list(KNOWN) == sorted(KNOWN)
