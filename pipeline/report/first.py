"""The recommended changes, most urgent first, then most expensive."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from history.causes import cause_row
from pipeline.report.savings import SCALING_MIN, Saving, arrivals_in_succession, cooperative_saving, lost_s, polled_late, scaling_of
from pipeline.report.stretches import STALLED_STATUSES
from pipeline.report.words import brief, counted, short_time
from pipeline.rows import Advice, Episode, Group, Hygiene

if TYPE_CHECKING:
    from pipeline.report.tables import ReportTables

SHOWN_MAX: Final = 12
# Urgency: data loss, stalled partitions, lost time, cleanup.
LOSS, STALLED, COST, CLEANUP = 3, 2, 1, 0

SUCCESSION_MIN: Final = 2  # rebalances that the policy saves; for fewer it is not worth a setting
REASONS: Final = {"offsets_about_to_expire": "They expire {}; then the group starts according to auto.offset.reset, and rereads or skips records."}
SHELL_SAFE: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")


def recommendations(tables: ReportTables, savings: Mapping[tuple[str, str], Saving]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for group in tables.groups:
        key = (group.cluster, group.group)
        if key in savings:
            rows.append(_of_timeouts(group, tables.advice[key], savings[key]))
        rows += _of_scaling(group, tables.episodes.get(key, []))
        rows += _of_slow_members(group, tables.episodes.get(key, []))
        rows += _of_stalled_partitions(group, tables)
        rows += _of_hygiene(group, tables.hygiene.get(key, []))
    rows.sort(key=lambda row: (-row["urgency"], -(row["saves_partition_s"] or 0.0), -(row["saves_rebalances"] or 0), row["group"]))
    return rows[:SHOWN_MAX]


def _recommendation(group: Group, urgency: int, title: str, why: str, how: str, confidence: str, saving: Saving | None = None) -> dict[str, Any]:
    return {
        "cluster": group.cluster,
        "group": group.group,
        "urgency": urgency,
        "title": title,
        "why": why,
        "how": how,
        "confidence": confidence,
        "saves_rebalances_min": saving and saving.rebalances_min,
        "saves_rebalances": saving and saving.rebalances,
        "saves_partition_s_min": saving and saving.partition_s_min,
        "saves_partition_s": saving and saving.partition_s,
    }


def _of_timeouts(group: Group, advice: Advice, saving: Saving) -> dict[str, Any]:
    title = f"{brief(group.group)}: {advice_title(advice)}, session.timeout.ms={advice.recommended_ms}"
    why = capitalized(advice.text.removeprefix(f"{group.group}: "))
    return _recommendation(group, COST, title, why, advice.setting, advice.confidence, saving)


def _of_scaling(group: Group, episodes: list[Episode]) -> list[dict[str, Any]]:
    """Advice for a group whose members come and go: each rebalance is needed, but it need not stop every partition, nor be one for each newcomer."""
    scaling = scaling_of(episodes)
    arrivals = arrivals_in_succession(scaling)
    serves_policies = group.notes != "none"  # notes are Tenure's
    rows = []
    saving = cooperative_saving(group, scaling)
    if saving is not None:
        newer = "" if serves_policies else " On Apache Kafka 4.0 or newer group.protocol=consumer (KIP-848) does the same without a rebalance of all members."
        why = (
            f"members came or left for good in {len(scaling)} rebalances, and each stopped all {counted(group.partitions, 'partition')}. With cooperative-sticky only "
            f"partitions that change their member stop, and the others are read meanwhile. Change it in two deploys: first add it to the list, then remove the others.{newer}"
        )
        how = "partition.assignment.strategy=org.apache.kafka.clients.consumer.CooperativeStickyAssignor  # cooperative-sticky in librdkafka"
        rows.append(_recommendation(group, COST, f"{brief(group.group)}: use cooperative-sticky, since it scales up and down", capitalized(why), how, saving.confidence, saving))
    elif not serves_policies and len(scaling) >= SCALING_MIN:
        why = f"Members came or left for good in {len(scaling)} rebalances. With KIP-848 the broker moves partitions one by one, and no member waits for the others; it needs Apache Kafka 4.0 or newer."
        seconds = lost_s(scaling)[1]
        rows += [_recommendation(group, COST, f"{brief(group.group)}: use the consumer protocol", why, "group.protocol=consumer", "strong", Saving(0, 0, 0.0, seconds, "strong"))] if seconds else []
    if serves_policies and arrivals.saved >= SUCCESSION_MIN:
        timeout_ms = -(-arrivals.apart_ms * 6 // 5 // 1_000) * 1_000 + 1_000
        why = (
            f"{arrivals.saved} rebalances began with members that arrived at most {short_time(arrivals.apart_ms)} after others. The policy lets newcomers wait for each other, "
            f"and admits them in one rebalance; until then they have no partitions. Keep it below the client's timeout for JoinGroup."
        )
        how = f"tenure group policy set {_quoted(group.group)} expansion.timeout.ms={timeout_ms}"
        rows.append(_recommendation(group, COST, f"{brief(group.group)}: admit new members together", why, how, "strong", Saving(0, arrivals.saved, 0.0, 0.0, "strong")))
    return rows


def advice_title(advice: Advice) -> str:
    if advice.static_share < 1:
        return "make all its members static" if advice.static_share else "make its members static"
    if (advice.current_max_ms or 0) >= (advice.recommended_ms or 0):
        return "give all its members one session timeout"  # the timeout is long enough for some members
    return "raise its session timeout"


def _of_slow_members(group: Group, episodes: list[Episode]) -> list[dict[str, Any]]:
    slow = [episode for episode in episodes if any(cause_row(cause).slow for cause in (episode.cause, *episode.contributing)) or polled_late(episode)]
    if len(slow) < 2:
        return []
    who = Counter(episode.trigger_client or episode.trigger_member or next(iter(episode.laggards), "unknown") for episode in slow).most_common(1)[0][0]
    return [
        _recommendation(
            group,
            COST,
            f"{brief(group.group)}: members take longer than max.poll.interval.ms between two polls",
            f"A slow poll started or delayed {len(slow)} rebalances, most often of {brief(who)}.",
            "max.poll.records=100  # or a longer max.poll.interval.ms",
            "strong",
            Saving(0, len(slow), 0.0, lost_s(slow)[1], "strong"),
        )
    ]


def _of_stalled_partitions(group: Group, tables: ReportTables) -> list[dict[str, Any]]:
    # The last interval of a removed offset is final: it ended with the removal.
    stalled = [status for status in tables.status.get((group.cluster, group.group), []) if not status.final and status.status in STALLED_STATUSES]
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
