"""A short comparison with a real Kafka; `make oracle` runs long ones."""

from __future__ import annotations

import asyncio
import json
import os
from random import Random

import pytest

from tests.sequences.choosing import REBALANCES
from tests.sequences.hunting import Hunt, ServerPair
from tests.sequences.worlds import REBALANCES_IN, WORLDS, kafka_in, ours_in, served_by

pytestmark = pytest.mark.kafka

SECONDS = 8  # in which sequences are begun; the last ones end some seconds later
SEQUENCES = 60
ROUNDS_AGAIN = 3


def test_new_sequences_get_kafkas_replies() -> None:
    seed = os.environ.get("TEST_SEED", "short")  # always the same seed: `make oracle` tries new sequences
    world = Random(seed).choice(sorted(WORLDS))
    with kafka_in(world) as kafka_port, ours_in(world) as port:
        versions = served_by(kafka_port, port)
        lines: list[str] = []
        hunt = Hunt(ServerPair(kafka_port, port, seed), versions, lines.append, ticks=4, rebalances=REBALANCES_IN.get(world, REBALANCES))
        asyncio.run(hunt.run(SECONDS, SEQUENCES))
        for signature, find in list(hunt.finds.items()):
            # On a busy machine all plays of a moment may be late, so a difference must also show at other moments.
            if not all(asyncio.run(hunt.servers.find(find.steps)) for _ in range(ROUNDS_AGAIN)):
                del hunt.finds[signature]
    finds = [f"{find.difference}\n" + "\n".join(json.dumps(step) for step in find.steps) for find in hunt.finds.values()]
    assert not finds, f"make oracle shows more ({world}, seed {seed}):\n" + "\n\n".join(finds)
    if hunt.counts["compared"] < SEQUENCES / 8:
        pytest.skip(f"the machine was too busy to compare anything: {dict(hunt.counts)}")
