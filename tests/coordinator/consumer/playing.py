"""Members that behave: they repeat their epoch, report what they own, and give up what they are told to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from coordinator import GroupConfig
from coordinator.consumer.assignors import ASSIGNORS
from tests.coordinator.consumer.programs import CONFIG, Answer, CorePlayer, Named

TIMEOUT = 30_000


class Play(CorePlayer):
    """`join`, `poll` and `ack` speak for members by name; what they were told last is kept in `epochs` and `owned`."""

    assignors = ASSIGNORS

    def __init__(self, config: GroupConfig = CONFIG) -> None:
        super().__init__(config)
        self.epochs: dict[str, int] = {}
        self.owned: dict[str, dict[str, list[int]]] = {}
        self.instances: dict[str, str | None] = {}

    def say(self, member: str, epoch: int, **fields: Any) -> Answer:
        """A heartbeat with exactly these fields."""
        answer = self.play({"do": "beat", "member": member, "epoch": epoch, **fields})
        if not answer["error"] and epoch >= 0:
            self.epochs[member] = answer["epoch"]
            if answer["assigned"] is not None:
                self.owned[member] = answer["assigned"]
        return answer

    def join(self, member: str, *topics: str, instance: str | None = None, **fields: Any) -> Answer:
        self.instances[member] = instance
        return self.say(member, 0, **{"timeout": TIMEOUT, "topics": list(topics), "owned": {}, "instance": instance, **fields})

    def poll(self, member: str, epoch: int | None = None, **fields: Any) -> Answer:
        """Unchanged since last time, with the instance id."""
        return self.say(member, self.epochs[member] if epoch is None else epoch, **{"instance": self.instances[member], **fields})

    def ack(self, member: str) -> Answer:
        """It owns what it was last told to, and no more."""
        return self.poll(member, owned=self.owned.get(member, {}))

    def settle_members(self, *members: str) -> None:
        for _ in range(4):
            for member in members:
                self.ack(member)

    def commit_as(self, member: str, epoch: int, partitions: Named, **fields: Any) -> int:
        return int(self.play({"do": "commit", "member": member, "epoch": epoch, "partitions": partitions, **fields})["error"])

    @property
    def epochs_shown(self) -> tuple[str, int, int]:
        """State, group epoch, target epoch."""
        look = self.look()
        return look["state"], look["epoch"], look["target_epoch"]

    def shown(self, member: str) -> Answer:
        answer: Answer = self.look()["members"][member]
        return answer


def ok(epoch: int, assigned: Named | None, member: str = "a", interval: int = 5_000) -> Answer:
    return {"error": 0, "member": member, "epoch": epoch, "interval": interval, "assigned": assigned}


def error(code: int) -> Answer:
    return {"error": code}


def partitions(*numbers: int, topic: str = "t") -> dict[str, Sequence[int]]:
    return {topic: list(numbers)}
