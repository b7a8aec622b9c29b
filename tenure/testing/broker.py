"""`Broker`: a process with one cluster to begin with, and as many more as a test wants."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from .cluster import Cluster
from .process import Process
from .settings import given_settings, text_of

if TYPE_CHECKING:
    from .in_process import InProcess


class Broker(Cluster):
    """Starts a broker, by default in a child process that ends with this one. It is its first cluster; `cluster()` makes others beside it."""

    def __init__(
        self,
        *,
        topics: Mapping[str, Any] | None = None,
        settings: Mapping[str, Any] | None = None,
        data: str | os.PathLike[str] | None = None,
        port: int = 0,
        in_process: bool = False,
        nodes: int = 1,
    ) -> None:
        """`data`: a directory for its data, which survives; without it everything is in memory (that of several nodes in a temporary directory).
        `in_process`: in a thread of this process. `nodes`: as many processes that are one cluster, to kill one of them.
        """
        if in_process and nodes > 1:
            raise ValueError("several nodes are processes of their own: leave out in_process")
        self.process: Process | InProcess
        if in_process:
            from .in_process import InProcess

            self.process = InProcess({name: text_of(value) for name, value in (settings or {}).items()}, data=data, port=port)
        else:
            self.process = Process(given_settings(settings), data=data, port=port, nodes=nodes)
        try:
            super().__init__(self.process.control, self.process.control.get("/v1/clusters/default"))
            self.make_topics(topics)
        except BaseException:
            self.process.stop()
            raise

    def cluster(self, *, topics: Mapping[str, Any] | None = None, settings: Mapping[str, Any] | None = None) -> Cluster:
        """Another cluster in the same process: made in milliseconds, with everything of its own."""
        return Cluster.make(self.control, topics=topics, settings=settings)

    def close(self) -> list[dict[str, Any]]:
        self.process.stop()
        return []
