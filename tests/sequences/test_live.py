"""A short hunt with a real Kafka; `make oracle` is the long one."""

from __future__ import annotations

import asyncio
import time

import pytest

from tests.sequences.choosing import REBALANCES
from tests.sequences.hunting import Arena, Hunt
from tests.sequences.worlds import REBALANCES_IN, WORLDS, kafka_in, ours_in, served_by

pytestmark = pytest.mark.once

SECONDS = 20
SEQUENCES = 60


@pytest.mark.parametrize("world", sorted(WORLDS))
def test_new_sequences_are_answered_as_kafka_answers_them(world: str) -> None:
    with kafka_in(world) as kafka_port, ours_in(world) as port:
        versions = served_by(kafka_port, port)
        said: list[str] = []
        seed = f"{time.time_ns():x}"[-8:]
        hunt = Hunt(Arena(kafka_port, port, seed), versions, said.append, ticks=5, rebalances=REBALANCES_IN.get(world, REBALANCES))
        asyncio.run(hunt.run(SECONDS, SEQUENCES))
    assert not hunt.finds, f"make oracle ARGS='--seed ...' shows more (seed {seed}):\n" + "\n".join(said)
    assert hunt.counts["compared"] > SEQUENCES / 3, f"too little was compared: {hunt.counts}"
