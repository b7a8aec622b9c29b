"""Advice for one group from its history: avoidable rebalances, the cost of deploys, the recommended session timeout."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from history import words
from pipeline.avoidable import YES, with_verdicts
from pipeline.deploys import deploys_of
from pipeline.gaps import DEATH, HEARTBEAT_GAP, gaps_of
from pipeline.groups import in_newer_protocol
from pipeline.restarts import Restarts
from pipeline.rows import Advice, CurvePoint, Deploy, Episode, Gap, GroupTables, MemberSpell, Replaced
from pipeline.timeouts import SAMPLES_FOR_A_QUANTILE, Death, Options, TimeoutChoice, bridging_ms, choose, curve, deaths_of
from pipeline.whatif import Script, confirmed_avoidable, with_saved_rebalances

DAY_MS = 86_400_000


class AdviceTables(NamedTuple):
    episodes: list[Episode]  # with avoidable, avoidable_by_ms and deploy
    replacements: list[Replaced]  # with saved_rebalances
    gaps: list[Gap]
    curve: list[CurvePoint]
    advice: list[Advice]
    deploys: list[Deploy]


def advise(cluster: str, group: str, tables: GroupTables, now_ms: int, options: Options | None = None) -> AdviceTables:
    """`advice` and `curve` are empty for a group in a newer protocol, whose restarts are unknown."""
    options = options if options is not None else Options()
    restarts = Restarts(tables, now_ms)
    deploys, episodes = deploys_of(cluster, group, restarts, with_verdicts(tables.episodes, restarts))
    gaps = gaps_of(cluster, group, restarts, tables.notes)
    deaths = deaths_of(spell for spell, _, _ in restarts.lost())
    if in_newer_protocol(tables.generations, tables.newer):
        return AdviceTables(episodes, with_saved_rebalances(Script(group, restarts, episodes, options.heartbeat_ms), restarts, tables.replacements), gaps, [], [], deploys)
    points = curve(cluster, group, gaps, episodes, deaths, options)
    chosen = choose(gaps, points, options)
    script = Script(group, restarts, episodes, options.heartbeat_ms)
    avoided = confirmed_avoidable(script, episodes, chosen.timeout_ms) if chosen.timeout_ms is not None else 0
    unlimited_avoided = confirmed_avoidable(script, episodes, chosen.unlimited_ms) if chosen.unlimited_ms is not None else 0
    advice = _advice(cluster, group, tables.spells, episodes, gaps, deaths, restarts.absent(), chosen, avoided, unlimited_avoided, options)
    return AdviceTables(episodes, with_saved_rebalances(script, restarts, tables.replacements), gaps, points, [advice], deploys)


def _advice(
    cluster: str,
    group: str,
    spells: Sequence[MemberSpell],
    episodes: Sequence[Episode],
    gaps: Sequence[Gap],
    deaths: Sequence[Death],
    absent: int,
    chosen: TimeoutChoice,
    avoided: int,
    unlimited_avoided: int,
    options: Options,
) -> Advice:
    current = [spell for spell in spells if spell.end_kind == "open"] or list(spells)[-1:]
    timeouts = [spell.session_timeout_ms for spell in current if spell.session_timeout_ms is not None]
    static_share = sum(spell.instance_id is not None for spell in current) / len(current) if current else 0.0
    complete = [episode for episode in episodes if not episode.missing]
    restarts = [gap for gap in gaps if gap.source not in (DEATH, HEARTBEAT_GAP)]
    timeout = chosen.timeout_ms
    later_detections = [(max(timeout - death.noticed_ms, 0), death.partitions) for death in deaths] if timeout is not None else []
    confidence = "none"
    if restarts:
        mostly_certain = sum(restart.confidence != "weak" for restart in restarts) * 2 >= len(restarts)
        confidence = "strong" if mostly_certain and chosen.samples >= SAMPLES_FOR_A_QUANTILE else "weak"
    settings = [] if timeout is None else [f"session.timeout.ms={timeout}"]
    if timeout is not None and static_share < 1:
        settings.insert(0, "group.instance.id=<a name that each process keeps after restarts>")
    text = Sentence(group, complete, restarts, timeouts, static_share, deaths, chosen, avoided, unlimited_avoided, options, absent).text
    return Advice(
        cluster,
        group,
        min(timeouts, default=None),
        max(timeouts, default=None),
        timeout,
        options.quantile,
        chosen.samples,
        avoided,
        len(complete),
        sum(ms * partitions for ms, partitions in later_detections),
        len(deaths),
        chosen.floor_ms,
        static_share,
        confidence,
        "\n".join(settings),
        text,
    )


def duration_text(ms: int) -> str:
    return words.format_duration(ms).replace(".0 s", " s")


class Sentence(NamedTuple):
    """The advice as a sentence for the report."""

    group: str
    episodes: Sequence[Episode]
    restarts: Sequence[Gap]
    timeouts: Sequence[int]
    static_share: float
    deaths: Sequence[Death]
    chosen: TimeoutChoice
    avoided: int  # rebalances that the chosen timeout avoids, by replay
    unlimited_avoided: int  # the same for `chosen.unlimited_ms`, the longer timeout that `detect_max_ms` excludes
    options: Options
    absent: int = 0  # members that have not returned yet, and still may

    @property
    def text(self) -> str:
        return " ".join(part for part in (f"{self.group}: {self._finding}", self._limit, self._floor, self._cost) if part)

    @property
    def _finding(self) -> str:
        chosen = self.chosen
        if chosen.gap_ms is None:
            return "no restart of a member was found, so there is no basis for a session timeout."
        if chosen.timeout_ms is None:
            return (
                f"restarts take up to {duration_text(self._longest_ms)}, longer than any reasonable session timeout; shorten them, or keep the timeout "
                "and remove the members of a deploy by their group.instance.id."
            )
        setting = f"`session.timeout.ms={chosen.timeout_ms}`"
        if self.static_share < 1:
            setting = f"`group.instance.id` plus {setting}"
        if not self.avoided:
            return self._nothing_avoided(setting)
        reached = [ms for ms in self._needed if ms <= chosen.timeout_ms]
        total = len(self.episodes)
        longer = len(self._needed) - len(reached)
        return (
            f"{self.avoided} of {total} {'rebalance' if total == 1 else 'rebalances'}{self._period} came from restarts of at most "
            f"{duration_text(max(reached) - 1)}; {setting} would have left {total - self.avoided}"
            f"{f', {longer} of them from restarts of up to {duration_text(max(self._needed) - 1)}' if longer else ''}."
        )

    def _nothing_avoided(self, setting: str) -> str:
        count = len(self.restarts)
        timeout = self.chosen.timeout_ms or 0
        bridged = sum(bridging_ms(gap) <= timeout for gap in self.restarts)
        surely = "surely " if any(gap.gap_lo_ms < timeout < bridging_ms(gap) for gap in self.restarts) else ""
        if bridged == count:
            enough = f"is enough for {'it' if count == 1 else 'them'}"
        elif count == 1:
            enough = f"is not {surely}enough for it"
        else:
            enough = f"is {surely}enough for {bridged or 'none'} of them"
        avoidable = len(self._needed)
        caused = f"{avoidable} avoidable {'rebalance' if avoidable == 1 else 'rebalances'}" if avoidable else "no rebalance that another setting would have avoided"
        return (
            f"{count} {'restart' if count == 1 else 'restarts'} of at most {duration_text(self._longest_ms)} caused {caused}; "
            f"{setting} {enough}{' and would have left no fewer rebalances' if avoidable else ''}."
        )

    @property
    def _longest_ms(self) -> int:
        return max(bridging_ms(gap) for gap in self.restarts) - 1

    @property
    def _needed(self) -> list[int]:
        """For each avoidable rebalance, the smallest session timeout that would have avoided it."""
        return [episode.avoidable_by_ms for episode in self.episodes if episode.avoidable == YES and episode.avoidable_by_ms is not None]

    @property
    def _limit(self) -> str:
        """How the limit for noticing a dead member changes the advice, and whether the limit can be kept."""
        chosen, limit = self.chosen, self.options.detect_max_ms
        if limit is None or chosen.timeout_ms is None:
            return ""
        named = f"the limit of {duration_text(limit)} for noticing a dead member"
        parts = []
        if chosen.timeout_ms > limit:
            reason = "" if chosen.why == "floor" else f": brokers allow no session timeout below {duration_text(self.options.session_min_ms)}"
            parts.append(f"{named.capitalize()} cannot be kept{reason}.")
        if chosen.unlimited_ms is not None:
            avoided = str(self.unlimited_avoided) if self.unlimited_avoided > self.avoided else "no more"
            parts.append(
                f"Without {'it' if parts else named}, the advice would be `session.timeout.ms={chosen.unlimited_ms}`, which would have avoided {avoided}."
            )
        return " ".join(parts)

    @property
    def _period(self) -> str:
        moments = [ms for episode in self.episodes for ms in (episode.start_lo_ms, episode.end_ms) if ms is not None]
        period = max(moments) - min(moments) if moments else 0
        return f" in {-(-period // DAY_MS)} days" if period > DAY_MS else f" in {duration_text(period)}" if period else ""

    @property
    def _floor(self) -> str:
        if self.chosen.floor_ms is None:
            return ""
        return f"It must be more than {duration_text(self.chosen.floor_ms)}: heartbeats of healthy members were up to {duration_text(self.chosen.floor_ms // 3)} late."

    @property
    def _cost(self) -> str:
        timeout = self.chosen.timeout_ms
        if timeout is None:
            return ""
        later = max((timeout - death.noticed_ms for death in self.deaths), default=timeout - min(self.timeouts, default=timeout))
        occurred = "none occurred" if not self.deaths else f"{len(self.deaths)} occurred"
        if self.absent:
            absent = f"{self.absent} {'has' if self.absent == 1 else 'have'} not returned yet"
            occurred = f"{occurred}, {absent}" if self.deaths else absent
        if later <= 0:
            return f"Cost: none; a member that does not come back is noticed {duration_text(-later)} sooner ({occurred})." if later else ""
        return f"Cost: up to {duration_text(later)} later detection of a member that does not come back ({occurred})."
