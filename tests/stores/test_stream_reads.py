"""Records of a topic that are no longer in memory are read from the engine, wherever a reader begins."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from broker.stores.jetstream.records import TAIL_BYTES
from storage import LogId
from tests.stores.jetstream_nodes import NodesOverJetStream, over_jetstream
from tests.stores.stream_topics import Written
from tests.support.nats_engine import NatsEngine

pytestmark = pytest.mark.jetstream

TOPIC = LogId("orders", 0)
VALUE = bytes(40_000)


@pytest.fixture
def nodes(one_server: NatsEngine) -> Iterator[NodesOverJetStream]:
    yield from over_jetstream(one_server, 60_000)


@pytest.mark.parametrize("together", [1, 4], ids=["one batch in an entry", "several batches in an entry"])
def test_a_log_is_read_whole_by_the_node_that_wrote_it(nodes: NodesOverJetStream, together: int) -> None:
    node = nodes.start(1)
    written = Written(TOPIC, segment_bytes=1 << 20)
    log = written.own(node)
    while len(written.sent) * len(VALUE) < 2 * TAIL_BYTES:
        for _ in range(together):
            written.append(log, (b"key", VALUE))
        written.settle(node)
    written.check(node, log)


def test_batches_that_are_appended_meanwhile_share_an_entry(nodes: NodesOverJetStream) -> None:
    first, second = nodes.start(1), nodes.start(2)
    written = Written(TOPIC)
    log = written.own(first)
    before = log.chain.committed_seq
    for number in range(40):
        written.append(log, (b"key-%d" % number, b"x"))
    written.settle(first)
    # At most three entries: the first batch, all others together, and, on a slow machine, the owner's acknowledged end.
    assert log.chain.committed_seq <= before + 3
    assert written.check(first, log) == list(range(40))
    nodes.end(first, second)
    assert written.check(second, written.own(second)) == list(range(40))
