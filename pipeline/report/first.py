"""The most important changes: all advice of the tables, most urgent first, then most expensive."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from pipeline.report.words import brief
from pipeline.rows import Advice, Episode, Group, Hygiene

if TYPE_CHECKING:
    from pipeline.report.tables import Tables

SHOWN_MAX: Final = 12
# Data loss comes first, then stopped partitions, then lost time.
LOSS, STANDSTILL, COST, TIDY = 3, 2, 1, 0

POLLED_LATE: Final = "poll timeout"  # in the LeaveGroup reason of a client that exceeded its poll interval
SLOW: Final = {"rebalance_timeout", "join_timeout", "sync_timeout"}
WHY: Final = {"offsets_about_to_expire": "That is {}; from then on it begins where auto.offset.reset says, and reads again or skips what lies between."}
SHELL_SAFE: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")


def recommendations(tables: Tables) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for group in tables.groups:
        key = (group.cluster, group.group)
        found += _of_timeouts(group, tables.episodes.get(key, []), tables.advice.get(key))
        found += _of_slow_members(group, tables.episodes.get(key, []))
        found += _of_standstill(group, tables)
        found += _of_hygiene(group, tables.hygiene.get(key, []))
    found.sort(key=lambda one: (-one["urgency"], -(one["saves_partition_s"] or 0.0), -(one["saves_rebalances"] or 0), one["group"]))
    return found[:SHOWN_MAX]


def _one(group: Group, urgency: int, title: str, why: str, how: str, confidence: str, **saves: Any) -> dict[str, Any]:
    return {
        "cluster": group.cluster,
        "group": group.group,
        "urgency": urgency,
        "title": title,
        "why": why,
        "how": how,
        "confidence": confidence,
        "saves_rebalances": saves.get("rebalances"),
        "saves_partition_s": saves.get("seconds"),
        "at_most": saves.get("at_most", False),  # the saving was not replayed, or is an upper bound as notes are missing
    }


def _of_timeouts(group: Group, episodes: list[Episode], advice: Advice | None) -> list[dict[str, Any]]:
    if advice is None or advice.recommended_ms is None or not advice.avoided:
        return []
    bridged = [episode for episode in episodes if episode.avoidable == "yes" and (episode.avoidable_by_ms or 0) <= advice.recommended_ms]
    if 3 * sum(map(_polled_late, bridged)) > len(bridged):
        return []  # not restarts: members that are too slow have their own advice
    seconds = round(sum(one.partition_seconds_lost or 0.0 for one in bridged), 1)
    return [
        _one(
            group,
            COST,
            f"{brief(group.group)}: {wanted(advice)}, session.timeout.ms={advice.recommended_ms}",
            sentence(advice.text.removeprefix(f"{group.group}: ")),
            advice.setting,
            advice.confidence,
            at_most=any(one.confidence != "exact" for one in bridged),
            rebalances=advice.avoided,
            seconds=seconds,
        )
    ]


def wanted(advice: Advice) -> str:
    """The advice in a few words."""
    if advice.static_share < 1:
        return "make all its members static" if advice.static_share else "make its members static"
    if (advice.current_max_ms or 0) >= (advice.recommended_ms or 0):
        return "give all its members one session timeout"  # it is long enough for some of them
    return "raise its session timeout"


def _of_slow_members(group: Group, episodes: list[Episode]) -> list[dict[str, Any]]:
    slow = [episode for episode in episodes if episode.cause in SLOW or SLOW & set(episode.contributing) or _polled_late(episode)]
    if len(slow) < 2:
        return []
    who = Counter(one.trigger_client or one.trigger_member or next(iter(one.laggards), "unknown") for one in slow).most_common(1)[0][0]
    return [
        _one(
            group,
            COST,
            f"{brief(group.group)}: members take longer than max.poll.interval.ms between two polls",
            f"{len(slow)} rebalances began or waited because a member was too slow to poll, most often {brief(who)}.",
            "max.poll.records=100  # or a longer max.poll.interval.ms",
            "strong",
            at_most=True,
            rebalances=len(slow),
            seconds=round(sum(one.partition_seconds_lost or 0.0 for one in slow), 1),
        )
    ]


def _polled_late(episode: Episode) -> bool:
    return POLLED_LATE in (episode.cause_detail or "")


def _of_standstill(group: Group, tables: Tables) -> list[dict[str, Any]]:
    last = {(one.topic, one.topic_partition): one for one in tables.status.get((group.cluster, group.group), [])}
    stuck = [one for one in last.values() if one.status in ("STOP", "STALL", "LOST", "REWIND")]
    if not stuck:
        return []
    worst = max(stuck, key=lambda one: (one.status == "LOST", one.lag or 0))
    lost = [one for one in stuck if one.status == "LOST"]
    more = f" and {len(stuck) - 1} more" if len(stuck) > 1 else ""
    owner = f"; its owner is {brief(worst.owner)}" if worst.owner else "; no member owns it"
    title = f"{brief(group.group)}: records of {brief(worst.topic)}-{worst.topic_partition}{more} were deleted before they were read" if lost else (
        f"{brief(group.group)}: {brief(worst.topic)}-{worst.topic_partition}{more} stands still"
    )
    behind = "It is behind by an unknown number of records" if worst.lag is None else f"It is {worst.lag:,} records behind"
    remedy = " A longer retention.ms of the topic gives it time to catch up." if lost else ""
    why = f"{behind}{owner} ({worst.status}: {worst.rule.replace('-', ' ')}).{remedy}"
    how = f"tenure group describe {_quoted(group.group)}"
    return [_one(group, LOSS if lost else STANDSTILL, title, why, how, "exact" if group.notes == "exact" else "strong")]


def _of_hygiene(group: Group, found: list[Hygiene]) -> list[dict[str, Any]]:
    name = _quoted(group.group)
    kinds = {
        "offsets_about_to_expire": (LOSS, "committed offsets{of} are about to expire", f"tenure group offsets show {name}"),
        "duplicate_instance": (COST, "two processes use one group.instance.id", "group.instance.id=<a name of its own for each process>"),
        "host_shared_instance": (TIDY, "an instance id moves between hosts", "group.instance.id=<the name of the pod or host>"),
        "dead_group": (TIDY, "nobody has used this group for long", f"tenure group delete {name} --dry-run"),
        "idle_member": (TIDY, "there are more members than partitions", f"tenure group members {name}"),
        "session_out_of_policy": (TIDY, "a session timeout is outside of what the broker allows", "session.timeout.ms=45000"),
    }
    out = []
    for kind, (urgency, title, how) in kinds.items():
        some = [one for one in found if one.kind == kind]
        if some:
            said = title.replace("{of}", f" of {len(some)} partitions" if len(some) > 1 else " of a partition")
            more = f" ({len(some)} times)" if len(some) > 1 and said == title else ""
            out.append(_one(group, urgency, f"{brief(group.group)}: {said}{more}", WHY.get(kind, "{}.").format(some[0].detail), how, "exact"))
    return out


def sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def _quoted(name: str) -> str:
    """Quote a name for the shell."""
    if name and set(name) <= SHELL_SAFE and not name.startswith("-"):
        return name
    return "'" + name.replace("'", "'\\''") + "'"
