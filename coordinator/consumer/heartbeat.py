"""A heartbeat of a member: it says what has changed, and hears what it should own. One step, in the order of the functions of `beat`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from coordinator.classic.kept import ALL_METADATA_MAX, MEMBER_METADATA_MAX, ids_bytes
from coordinator.consumer import expressions
from coordinator.consumer.calls import HeartbeatReply, HeartbeatRequest
from coordinator.consumer.changes import Change, EpochChange, HoldingChange, ProfileChange, TargetChange, TargetEpochChange
from coordinator.consumer.group import is_reconciled, partitions_of, profile_bytes, same_partitions
from coordinator.consumer.identity import MESSAGES, Does, epoch_is_valid, identify
from coordinator.consumer.member import Profile
from coordinator.consumer.reconcile import Reconciliation, reconcile
from coordinator.consumer.removal import go_away, remove_members
from coordinator.consumer.step import HeartbeatStep
from coordinator.consumer.target import compute, is_due, preferred_assignor, topic_names
from protocol.errors import ErrorCode

if TYPE_CHECKING:
    from coordinator.consumer.group import ConsumerGroup
    from coordinator.consumer.keeper import Keeper
    from coordinator.consumer.member import ConsumerMember

REFRESH_MS: Final = (1 << 31) - 1  # never: a change of a topic sets the deadline to 0

FENCED: Final = HeartbeatReply(ErrorCode.FENCED_MEMBER_EPOCH, "the member epoch is not the member's: it must give up its partitions and join again")
FULL: Final = HeartbeatReply(ErrorCode.GROUP_MAX_SIZE_REACHED, "the group has as many members as it may have")


def heartbeat(keeper: Keeper, group: ConsumerGroup, request: HeartbeatRequest, founding: Sequence[Change] = ()) -> HeartbeatReply:
    """Handle the heartbeat of a request that `checks.py` has accepted, in a group that may be new.

    `founding`: the changes that made the group of a classic one, which are carried out with the heartbeat.
    """
    config = keeper.config_of(group.id)
    does, member = identify(group, request)
    known = request.member_id in group.members or request.instance_id in group.static_members
    if request.epoch >= 0 and not known and len(group.members) >= config.max_size:
        return FULL
    if isinstance(does, ErrorCode):
        return HeartbeatReply(does, MESSAGES[does])
    if does is Does.REMOVE or does is Does.GO_AWAY:
        assert member is not None
        if does is Does.REMOVE:
            remove_members(keeper, group, [member])
        else:
            go_away(keeper, group, member)
        return HeartbeatReply(member_id=request.member_id, epoch=request.epoch)
    if does is Does.BEAT and member is not None and not epoch_is_valid(member, request):
        return FENCED
    step = HeartbeatStep(group, config, request, request.member_id or keeper.new_member_id(), member)
    step.changes += founding
    if does is Does.REPLACE and member is not None:
        step.replace(member)
    return change_profile(keeper, step) or move(keeper, step) or finish(keeper, step)


def change_profile(keeper: Keeper, step: HeartbeatStep) -> HeartbeatReply | None:
    """What the member says about itself, and whether it asks for a new target; or an error."""
    bump = update_profile(step)
    error = expressions.refusal(step) or memory_refusal(keeper, step)
    if error is not None:
        return error
    bump |= expressions.change(keeper, step)
    bump |= assignor_changed(step)
    begin_epoch(keeper, step, bump)
    return None


def move(keeper: Keeper, step: HeartbeatStep) -> HeartbeatReply | None:
    """Towards the newest target, which is computed if it is due; or an error."""
    try:
        retarget(keeper, step)
    except Exception as failure:  # of an assignor: nothing has changed yet
        return HeartbeatReply(ErrorCode.UNKNOWN_SERVER_ERROR, f"the assignor failed: {failure!r}", failure=failure)
    return None if reconcile_member(keeper, step) else FENCED


def update_profile(step: HeartbeatStep) -> bool:
    """What the member says about itself; return whether it names other topics than before."""
    before, request = step.profile_before, step.request
    profile = Profile(
        before.instance_id if request.instance_id is None else request.instance_id,
        before.rack_id if request.rack_id is None else request.rack_id,
        request.client_id,
        request.client_host,
        before.topics if request.topics is None else tuple(sorted(set(request.topics))),
        before.expression if request.expression is None else request.expression,
        before.rebalance_timeout_ms if request.rebalance_timeout_ms == -1 else request.rebalance_timeout_ms,
        before.assignor if request.assignor is None else request.assignor,
        step.classic,
    )
    if step.is_new or profile != before:
        step.profile = profile
        step.changes.append(ProfileChange(step.id, profile))
    return step.topics_changed


def memory_refusal(keeper: Keeper, step: HeartbeatStep) -> HeartbeatReply | None:
    """A member keeps no more than the limits allow, for itself and for all groups of the node."""
    out, profile = keeper.out, step.profile
    if profile is step.profile_before:
        return None
    size = profile_bytes(profile) + ids_bytes(step.id, None, "", "")
    growth = size if step.is_new else profile_bytes(profile) - profile_bytes(step.profile_before)
    if growth <= 0:
        return None
    if size > out.config.group_member_metadata_max_bytes:
        setting = MEMBER_METADATA_MAX
    elif not out.has_memory(growth):
        setting = ALL_METADATA_MAX
    else:
        return None
    out.limit_reached(setting, step.group.id, step.id, profile.client_host, size)
    return HeartbeatReply(ErrorCode.GROUP_MAX_SIZE_REACHED, f"what the member keeps in memory exceeds {setting}")


def assignor_changed(step: HeartbeatStep) -> bool:
    before, votes = step.group.assignor_votes, step.votes()
    return votes is not before and preferred_assignor(votes, step.config) != preferred_assignor(before, step.config)


def begin_epoch(keeper: Keeper, step: HeartbeatStep, bump: bool) -> None:
    """A new epoch asks for a new target. Other topics than at the last epoch are a reason too, looked for when the refresh is due."""
    group = step.group
    if not bump and keeper.out.now < group.refresh_at:
        return
    step.refreshes = True
    hash = keeper.hash_of(step.topics())
    if bump or hash != group.hash:
        step.epoch += 1
        step.changes.append(EpochChange(step.epoch, hash))


def retarget(keeper: Keeper, step: HeartbeatStep) -> None:
    """Compute the target for the newest epoch, unless the last one was computed a moment ago."""
    group = step.group
    if not is_due(group, step.config, step.epoch, keeper.out.wall):
        return
    assignor = preferred_assignor(step.votes(), step.config)
    before = step.targets()
    for id, target in compute(group, step.profiles(), before, step.resolved, keeper.topics, assignor).items():
        if target is not before.get(id):
            step.changes.append(TargetChange(id, target))
        if id == step.id:
            step.target = target
    step.target_epoch = step.epoch
    step.changes.append(TargetEpochChange(step.epoch, keeper.out.wall))


def reconcile_member(keeper: Keeper, step: HeartbeatStep) -> bool:
    """Move the member towards its target; False: it is fenced."""
    if is_reconciled(step.holding, step.target_epoch) and not step.subscription_changed:
        return True
    group = step.group
    topic_ids = keeper.topics.ids_of(topic_names(step.profile, step.resolved))
    target = {topic_id: partitions for topic_id, partitions in step.target.items() if topic_id in topic_ids}
    to = Reconciliation(step.target_epoch, target, frozenset(topic_ids), step.request.owned, step.subscription_changed, group.is_held)
    holding = reconcile(step.holding, to)
    if holding is None:
        return False
    if holding != step.holding:
        step.changes.append(HoldingChange(step.id, holding))
    step.holding = holding
    return True


def carry_out(keeper: Keeper, step: HeartbeatStep) -> ConsumerMember:
    """Carry the changes out; return the member, whose session restarts."""
    group = step.group
    keeper.carry_out(group, step.changes)
    if step.refreshes:
        group.refresh_at = keeper.out.now + REFRESH_MS
    if step.resolves:
        keeper.ask_for_resolution(group, step.request.asker)
    member = group.members[step.id]
    keeper.restart_session(member)
    return member


def finish(keeper: Keeper, step: HeartbeatStep) -> HeartbeatReply:
    """Carry the changes out, restart the timers, and answer."""
    request = step.request
    member = carry_out(keeper, step)
    if step.profile_before.classic is not None:
        keeper.stop_phases(member)  # it speaks the consumer protocol now
    if step.holding is not step.holding_before or step.profile_before.classic is not None:
        keeper.restart_revocation(member)
    says_all = request.epoch == 0 or request.is_full or not same_partitions(step.holding.assigned, step.holding_before.assigned)
    assignment = partitions_of(step.holding.assigned) if says_all else None
    return HeartbeatReply(0, None, step.id, step.holding.epoch, step.config.heartbeat_interval_ms, assignment)

