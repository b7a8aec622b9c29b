"""Random programs keep the promises of the protocol (`truths.py`), restarts included, and end in a settled group when members behave."""

from __future__ import annotations

from random import Random

import pytest

from coordinator.consumer.config import MigrationPolicy
from coordinator.consumer.group import partitions_of
from tests.coordinator.consumer.generating import Generator, generate
from tests.coordinator.consumer.mixing import MixedGenerator
from tests.coordinator.consumer.programs import CONFIG, GROUP, Answer, CorePlayer, Step, Waiter
from tests.support.cases import some

pytestmark = pytest.mark.once  # pure rules


class Promises:
    """Epochs of a group only grow, also over a new coordinator, which takes over now and then. A group that was deleted begins again."""

    def __init__(self, player: CorePlayer, random: Random) -> None:
        self.player = player
        self.random = random
        self.epochs = (0, 0)

    def check(self) -> None:
        group = self.player.shard.consumers.groups.get(GROUP)
        if group is None:
            self.epochs = (0, 0)
            return
        assert group.epoch >= self.epochs[0]
        assert group.target_epoch >= self.epochs[1]
        self.epochs = group.epoch, group.target_epoch
        if self.random.random() < 0.05:
            self.player.restart()
            self.player.settle()


@pytest.mark.parametrize("seed", some(2, range(10)))
def test_random_programs_keep_the_promises(seed: int) -> None:
    for number in range(4):
        random = Random(f"{seed}-{number}")
        player = CorePlayer()
        generator = Generator(random, "t", regexes=number % 2 == 0, waits=number == 3)
        generate(generator, player, 50, Promises(player, random).check)
        settle(player, generator)


class Observed(CorePlayer):
    """A classic member hears in its SyncGroup what it holds at its epoch, and nothing else."""

    def _heard(self, name: str, kind: str, waiter: Waiter) -> Answer:
        answer = super()._heard(name, kind, waiter)
        group = self.shard.consumers.groups.get(GROUP)
        if group is not None and kind == "sync" and not answer["error"]:
            holding = group.members[self.identities.id_of(name)].holding
            assert answer["assigned"] == self.named(partitions_of(holding.assigned))
            assert holding.epoch <= group.target_epoch
        return answer


@pytest.mark.parametrize("policy", MigrationPolicy)
@pytest.mark.parametrize("seed", some(1, range(3)))
def test_random_programs_of_both_protocols_keep_the_promises(seed: int, policy: MigrationPolicy) -> None:
    for number in range(4):
        random = Random(f"{seed}-{number}")
        player = Observed(CONFIG._replace(consumer=CONFIG.consumer._replace(migration_policy=policy)))
        generator = MixedGenerator(random, "t", regexes=number % 2 == 0, waits=number == 3)
        generate(generator, player, 50, Promises(player, random).check)


def settle(player: CorePlayer, generator: Generator) -> None:
    """All members behave: the group is stable within some rounds, and each partition that is read has its member."""
    player.wait(50_000)  # whoever no client stands for any more is removed at the end of its session
    for client in generator.clients:
        client.joined = False
    for _ in range(20):
        for client in generator.clients:
            step: Step = {"do": "beat", "member": client.member, "epoch": client.epoch, "owned": client.owned} if client.joined else generator.join(client)
            if client.instance is not None:
                step["instance"] = client.instance
            generator.learn(step, player.play(step))
        player.wait(1_100)  # in the end also the next resolution of expressions is due
    group = player.group
    assert group.state == "Stable"
    assert set(group.members) == {client.member for client in generator.clients}
    read = {topic.id: topic.partitions for name, topic in player.topics.items() if group.subscribes_to(name)}
    assert {topic_id: sorted(holders) for topic_id, holders in group.holders.items()} == {id: list(range(count)) for id, count in read.items()}
