"""`Broker`: a process with one cluster to begin with, and as many more as a test wants."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from .cluster import Cluster
from .process import Process


class Broker(Cluster):
    """Starts a broker in a child process, which ends with this one. It is its first cluster; `cluster()` makes others beside it."""

    def __init__(
        self,
        *,
        topics: Mapping[str, Any] | None = None,
        settings: Mapping[str, Any] | None = None,
        data: str | os.PathLike[str] | None = None,
        port: int = 0,
    ) -> None:
        """`data`: a directory for its data, which survives; without it everything is in memory."""
        given = [word for name, value in (settings or {}).items() for word in ("--set", f"{name}={text_of(value)}")]
        self.process = Process(given, data=data, port=port)
        try:
            super().__init__(self.process.control, self.process.control.get("/v1/clusters/default"))
            for name, value in (topics or {}).items():
                if isinstance(value, Mapping):
                    self.topic(name, value.get("partitions", 1), **value.get("config", {}))
                else:
                    self.topic(name, value)
        except BaseException:
            self.process.stop()
            raise

    def cluster(self, *, topics: Mapping[str, Any] | None = None, settings: Mapping[str, Any] | None = None) -> Cluster:
        """Another cluster in the same process: made in milliseconds, with everything of its own."""
        return Cluster.make(self.control, topics=topics, settings=settings)

    def close(self) -> list[dict[str, Any]]:
        self.process.stop()
        return []


def text_of(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
