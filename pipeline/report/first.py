"""The recommended changes, most urgent first, then most expensive."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from history.inferred import MAX_POLL_INTERVAL
from pipeline.report.words import brief, counted
from pipeline.rows import Advice, Episode, Group, Hygiene

if TYPE_CHECKING:
    from pipeline.report.tables import Tables

SHOWN_MAX: Final = 12
# Urgency: data loss, stalled partitions, lost time, cleanup.
LOSS, STALLED, COST, CLEANUP = 3, 2, 1, 0

POLLED_LATE: Final = "poll timeout"  # in the LeaveGroup reason of a client that exceeded its poll interval
SLOW: Final = {"rebalance_timeout", "join_timeout", "sync_timeout"}
REASONS: Final = {"offsets_about_to_expire": "They expire {}; then the group starts according to auto.offset.reset, and rereads or skips records."}
SHELL_SAFE: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")


def recommendations(tables: Tables) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for group in tables.groups:
        key = (group.cluster, group.group)
        rows += _of_timeouts(group, tables.episodes.get(key, []), tables.advice.get(key))
        rows += _of_slow_members(group, tables.episodes.get(key, []))
        rows += _of_stalled_partitions(group, tables)
        rows += _of_hygiene(group, tables.hygiene.get(key, []))
    rows.sort(key=lambda row: (-row["urgency"], -(row["saves_partition_s"] or 0.0), -(row["saves_rebalances"] or 0), row["group"]))
    return rows[:SHOWN_MAX]


def _recommendation(group: Group, urgency: int, title: str, why: str, how: str, confidence: str, **saves: Any) -> dict[str, Any]:
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
        "at_most": saves.get("at_most", False),  # the saving is an upper bound: not replayed, or notes are missing
    }


def _of_timeouts(group: Group, episodes: list[Episode], advice: Advice | None) -> list[dict[str, Any]]:
    if advice is None or advice.recommended_ms is None or not advice.avoided:
        return []
    bridged = [episode for episode in episodes if episode.avoidable == "yes" and (episode.avoidable_by_ms or 0) <= advice.recommended_ms]
    if 3 * sum(map(_polled_late, bridged)) > len(bridged):
        return []  # slow members, which get their own advice
    seconds = round(sum(episode.partition_seconds_lost or 0.0 for episode in bridged), 1)
    return [
        _recommendation(
            group,
            COST,
            f"{brief(group.group)}: {advice_title(advice)}, session.timeout.ms={advice.recommended_ms}",
            capitalized(advice.text.removeprefix(f"{group.group}: ")),
            advice.setting,
            advice.confidence,
            at_most=any(episode.confidence != "exact" for episode in bridged),
            rebalances=advice.avoided,
            seconds=seconds,
        )
    ]


def advice_title(advice: Advice) -> str:
    if advice.static_share < 1:
        return "make all its members static" if advice.static_share else "make its members static"
    if (advice.current_max_ms or 0) >= (advice.recommended_ms or 0):
        return "give all its members one session timeout"  # the timeout is long enough for some members
    return "raise its session timeout"


def _of_slow_members(group: Group, episodes: list[Episode]) -> list[dict[str, Any]]:
    slow = [episode for episode in episodes if episode.cause in SLOW or SLOW & set(episode.contributing) or _polled_late(episode)]
    if len(slow) < 2:
        return []
    who = Counter(episode.trigger_client or episode.trigger_member or next(iter(episode.laggards), "unknown") for episode in slow).most_common(1)[0][0]
    return [
        _recommendation(
            group,
            COST,
            f"{brief(group.group)}: members take longer than max.poll.interval.ms between two polls",
            f"a slow poll started or delayed {len(slow)} rebalances, most often of {brief(who)}.",
            "max.poll.records=100  # or a longer max.poll.interval.ms",
            "strong",
            at_most=True,
            rebalances=len(slow),
            seconds=round(sum(episode.partition_seconds_lost or 0.0 for episode in slow), 1),
        )
    ]


def _polled_late(episode: Episode) -> bool:
    return POLLED_LATE in (episode.cause_detail or "") or (episode.confidence != "exact" and MAX_POLL_INTERVAL in episode.evidence)


def _of_stalled_partitions(group: Group, tables: Tables) -> list[dict[str, Any]]:
    # The last interval of a removed offset is final: it ended with the removal.
    stalled = [status for status in tables.status.get((group.cluster, group.group), []) if not status.final and status.status in ("STOP", "STALL", "LOST", "REWIND")]
    if not stalled:
        return []
    worst = max(stalled, key=lambda status: (status.status == "LOST", status.lag or 0))
    lost = [status for status in stalled if status.status == "LOST"]
    more = f" and {len(stalled) - 1} more" if len(stalled) > 1 else ""
    owner = f"; its owner is {brief(worst.owner)}" if worst.owner else "; no member owns it"
    title = f"{brief(group.group)}: records of {brief(worst.topic)}-{worst.topic_partition}{more} were deleted before they were read" if lost else (
        f"{brief(group.group)}: {brief(worst.topic)}-{worst.topic_partition}{more} {'is' if len(stalled) == 1 else 'are'} stalled"
    )
    lag_text = "Its lag is unknown" if worst.lag is None else f"Its lag is {counted(worst.lag, 'record')}"
    remedy = " A longer retention.ms of the topic gives the group time to catch up." if lost else ""
    why = f"{lag_text}{owner} ({worst.status}: {worst.rule.replace('-', ' ')}).{remedy}"
    how = f"tenure group describe {_quoted(group.group)}"
    return [_recommendation(group, LOSS if lost else STALLED, title, why, how, "exact" if group.notes == "exact" else "strong")]


def _of_hygiene(group: Group, findings: list[Hygiene]) -> list[dict[str, Any]]:
    name = _quoted(group.group)
    kinds = {
        "offsets_about_to_expire": (LOSS, "committed offsets{of} are about to expire", f"tenure group offsets show {name}"),
        "duplicate_instance": (COST, "two processes use one group.instance.id", "group.instance.id=<a different name for each process>"),
        "host_shared_instance": (CLEANUP, "an instance id moves between hosts", "group.instance.id=<the name of the pod or host>"),
        "dead_group": (CLEANUP, "the group has not been used for a long time", f"tenure group delete {name} --dry-run"),
        "idle_member": (CLEANUP, "there are more members than partitions", f"tenure group members {name}"),
        "session_out_of_policy": (CLEANUP, "a session timeout is very short or very long", "session.timeout.ms=45000"),
    }
    rows = []
    for kind, (urgency, title, how) in kinds.items():
        of_kind = [finding for finding in findings if finding.kind == kind]
        if of_kind:
            title_text = title.replace("{of}", f" of {len(of_kind)} partitions" if len(of_kind) > 1 else " of a partition")
            more = f" ({len(of_kind)} times)" if len(of_kind) > 1 and title_text == title else ""
            rows.append(_recommendation(group, urgency, f"{brief(group.group)}: {title_text}{more}", REASONS.get(kind, "{}.").format(of_kind[0].detail), how, "exact"))
    return rows


def capitalized(text: str) -> str:
    return text[:1].upper() + text[1:]


def _quoted(name: str) -> str:
    """Quote a name for the shell."""
    if name and set(name) <= SHELL_SAFE and not name.startswith("-"):
        return name
    return "'" + name.replace("'", "'\\''") + "'"
