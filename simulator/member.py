"""What a model consumer knows: its connection, its place in the group and its partitions."""

from __future__ import annotations

from typing import Any

from simulator.client import Client, ClientConnection
from simulator.styles import Settings
from simulator.world import World


class Member(Client):
    def __init__(self, world: World, group: str, name: str, instance: str | None, settings: Settings) -> None:
        super().__init__(world, name)
        self.group = group
        self.instance = instance
        self.settings = settings
        self.wire: ClientConnection | None = None
        self.member_id = ""
        self.generation = -1
        self.leads = False  # whether it is the leader of its newest generation
        self.owned: list[tuple[str, int]] = []
        self.topics = [topic for topic, _ in settings.topics]
        self.has_assignment = False  # of the newest generation it knows
        self.fenced = False

    @property
    def member_key(self) -> str:
        return self.instance or self.member_id

    def waits_for(self, *requests: type[Any]) -> bool:
        """Whether the oldest unanswered request is one of these."""
        wire = self.wire
        return wire is not None and wire.open and bool(wire.waiting) and isinstance(wire.waiting[0].message, requests)
