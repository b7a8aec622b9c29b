"""A node looks for other nodes for as long as it runs, also after a search that failed."""

from __future__ import annotations

from collections.abc import Iterator

from broker.stores.shared import FIND_NODES_SECONDS
from storage import NodeInfo
from tests.stores.nodes import NodesOverSimDisk


class Files:
    """Other nodes' files, which fail as often as the test says."""

    def __init__(self) -> None:
        self.failures = 2
        self.nodes = [NodeInfo(2, ())]

    def changed(self) -> bool:
        return bool(self.nodes)

    def find_changes(self) -> Iterator[tuple[int, NodeInfo | None]]:
        if self.failures:
            self.failures -= 1
            raise OSError(24, "Too many open files")
        found, self.nodes = self.nodes, []
        yield from [(node.id, node) for node in found]

    def close(self) -> None: ...


def test_a_failed_search_does_not_end_the_searches() -> None:
    node = NodesOverSimDisk().start(1)
    files = Files()
    node.store._live_nodes = files  # type: ignore[assignment]
    changes: list[tuple[int, bool]] = []
    node.store.watch_nodes(lambda id, alive: changes.append((id, alive)))
    for _ in range(3):
        node.loop.jump(FIND_NODES_SECONDS)
        node.loop.run()
    assert changes == [(2, True)]
    assert node.store.view().live[2] == NodeInfo(2, ())
