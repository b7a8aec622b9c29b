"""A classic group with members becomes a group of the consumer protocol: a member of that protocol joins it.

Its members stay, with the classic protocol, and keep what the last generation assigned them. The newcomer's join is the rest of the step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from coordinator.classic.group import CONSUMER
from coordinator.consumer.assignors.java_order import CoordinatorOrder, buckets_of, by_bucket, hashes
from coordinator.consumer.changes import Change, EpochChange, HoldingChange, ProfileChange, TargetChange, TargetEpochChange
from coordinator.consumer.embedded import held_of, subscription_of
from coordinator.consumer.facts import fact_of
from coordinator.consumer.group import ConsumerGroup
from coordinator.consumer.member import STABLE, ClassicPart, Held, Holding, Profile
from coordinator.facts import group_key

if TYPE_CHECKING:
    from coordinator.classic.group import Group
    from coordinator.classic.member import Member
    from coordinator.consumer.keeper import Keeper


class Upgrade(NamedTuple):
    """The group as it would be, which is not among the groups yet, and the changes that found it."""

    group: ConsumerGroup
    founding: list[Change]


def upgraded(keeper: Keeper, classic: Group) -> Upgrade | None:
    """None: the group must stay classic. Nothing has changed yet."""
    config = keeper.config_of(classic.id)
    if not config.migration_policy.upgrades or classic.protocol_type != CONSUMER or len(classic.members) > config.max_size:
        return None
    profiles: dict[str, Profile] = {}
    held: dict[str, Held] = {}
    order = CoordinatorOrder()
    ids = list(classic.members)
    for id in by_bucket(ids, hashes(ids), buckets_of(len(ids))):
        member = classic.members[id]
        profile = profile_of(keeper, member, classic.protocol_name)
        assigned = held_of(member.assignment, keeper.topics, classic.generation)
        if profile is None or assigned is None:
            return None
        profiles[id], held[id] = profile, assigned
        order.put(id)
    in_order = order.ids()
    epoch = classic.generation
    founding: list[Change] = [ProfileChange(id, profiles[id]) for id in in_order]
    founding.append(EpochChange(epoch, keeper.hash_of({topic for profile in profiles.values() for topic in profile.topics})))
    founding += [TargetChange(id, {topic_id: list(partitions) for topic_id, partitions in held[id].items()}) for id in in_order]
    founding.append(TargetEpochChange(epoch))
    founding += [HoldingChange(id, Holding(epoch, epoch, STABLE, held[id])) for id in in_order]
    if not keeper.out.fits([(group_key(classic.id), None), *[fact_of(classic.id, change) for change in founding]]):
        return None
    group = ConsumerGroup(classic.id, keeper.out.kept)
    for change in founding:
        group.apply(change)
    group.order = order
    return Upgrade(group, founding)


def profile_of(keeper: Keeper, member: Member, protocol: str | None) -> Profile | None:
    """`protocol`: of the last generation, in which the member need not have been: then it is taken at its first word."""
    subscription = subscription_of(member.metadata(protocol) or member.protocols[0][1], keeper.topics)
    if subscription is None:
        return None
    classic = ClassicPart(member.session_timeout_ms, member.protocols)
    return Profile(
        member.instance_id,
        subscription.rack_id,
        member.client_id,
        member.client_host,
        subscription.topics,
        "",
        member.rebalance_timeout_ms,
        None,
        classic,
    )
