"""A cluster: the verbs of the control, its groups, and what a test asserts."""

from __future__ import annotations

import contextlib
import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from .assertions import Group, assert_each_record_once, rebalances
from .control import Control
from .story import story_of
from .verbs import Verbs


class Namespace:
    """Names with a prefix of their own: `names("billing")` is one, `names.topic("orders", 6)` makes a topic of such a name."""

    def __init__(self, cluster: Verbs, prefix: str) -> None:
        self._cluster = cluster
        self.prefix = prefix

    def __call__(self, name: str) -> str:
        return self.prefix + name

    def topic(self, name: str, partitions: int = 1, **config: Any) -> str:
        return self._cluster.topic(self(name), partitions, **config)


class Cluster(Verbs):
    """A cluster of its own: port, topics, groups, settings, clock and faults."""

    def __init__(self, control: Control, document: Mapping[str, Any]) -> None:
        super().__init__(control, document)
        self._groups: dict[str, Group] = {}

    @classmethod
    def make(cls, control: Control, *, topics: Mapping[str, Any] | None = None, settings: Mapping[str, Any] | None = None) -> Cluster:
        return cls(control, control.post("/v1/clusters", {"topics": dict(topics or {}), "settings": dict(settings or {})}))

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def group(self, name: str) -> Group:
        self.groups_named.add(name)
        return self._groups.setdefault(name, Group(self, name))

    @contextlib.contextmanager
    def namespace(self, prefix: str = "") -> Iterator[Namespace]:
        """Names that nothing else in this cluster has; what has such a name is deleted at the end."""
        names = Namespace(self, f"{re.sub('[^a-zA-Z0-9._-]', '-', prefix)[:80]}{'-' if prefix else ''}{secrets.token_hex(4)}-")
        try:
            yield names
        finally:
            self.purge(names.prefix)

    # Assertions.

    @contextlib.contextmanager
    def no_rebalance(self, group: str, *, except_causes: Sequence[str] = ()) -> Iterator[None]:
        """No rebalance of the group begins in the block, but for these causes."""
        with rebalances(self, group, exactly=0, except_causes=except_causes):
            yield

    @contextlib.contextmanager
    def rebalances(
        self, group: str, *, exactly: int | None = None, at_most: int | None = None, cause: str | None = None, except_causes: Sequence[str] = ()
    ) -> Iterator[None]:
        """So many rebalances of the group in the block, for this cause; those for `except_causes` do not count."""
        with rebalances(self, group, exactly=exactly, at_most=at_most, cause=cause, except_causes=except_causes):
            yield

    def assert_each_record_once(self, topic: str, group: str) -> None:
        """The group has committed each partition of the topic to its end, and to no other partition's loss."""
        assert_each_record_once(self, topic, group)

    def story(self) -> str:
        """What happened in this cluster, for the report of a failed test."""
        return story_of(self)
