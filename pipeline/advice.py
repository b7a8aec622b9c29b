"""Advice for one group from its history: avoidable rebalances, the cost of its deploys, the recommended session timeout.

Pure: equal tables give equal answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from history import words
from pipeline.avoidable import YES, judged
from pipeline.deploys import deploys_of
from pipeline.gaps import DEATH, HEARTBEAT_GAP, gaps_of
from pipeline.restarts import Restarts
from pipeline.rows import Advice, CurvePoint, Deploy, Episode, Gap, GroupTables, Replaced, Spell
from pipeline.timeouts import SAMPLES_FOR_A_QUANTILE, Chosen, Death, Options, choose, curve, deaths_of
from pipeline.whatif import Script, confirmed, saved

DAY_MS = 86_400_000


class AdviceTables(NamedTuple):
    episodes: list[Episode]  # with avoidable, avoidable_by_ms and deploy
    replacements: list[Replaced]  # with saved_rebalances
    gaps: list[Gap]
    curve: list[CurvePoint]
    advice: list[Advice]
    deploys: list[Deploy]


def advise(cluster: str, group: str, tables: GroupTables, now_ms: int, options: Options | None = None) -> AdviceTables:
    options = options if options is not None else Options()
    restarts = Restarts(tables, now_ms)
    deploys, episodes = deploys_of(cluster, group, restarts, judged(tables.episodes, restarts))
    gaps = gaps_of(cluster, group, restarts, tables.notes)
    deaths = deaths_of(spell for spell, _, _ in restarts.lost())
    points = curve(cluster, group, gaps, episodes, deaths, options)
    chosen = choose(gaps, points, options)
    script = Script(group, restarts, episodes, options.heartbeat_ms)
    avoided = confirmed(script, episodes, chosen.timeout_ms) if chosen.timeout_ms is not None else 0
    advice = _advice(cluster, group, tables.spells, episodes, gaps, deaths, chosen, avoided, options)
    return AdviceTables(episodes, saved(script, restarts, tables.replacements), gaps, points, [advice], deploys)


def _advice(
    cluster: str,
    group: str,
    spells: Sequence[Spell],
    episodes: Sequence[Episode],
    gaps: Sequence[Gap],
    deaths: Sequence[Death],
    chosen: Chosen,
    avoided: int,
    options: Options,
) -> Advice:
    now = [spell for spell in spells if spell.end_kind == "open"] or list(spells)[-1:]
    timeouts = [one.session_timeout_ms for one in now if one.session_timeout_ms is not None]
    static_share = sum(one.instance_id is not None for one in now) / len(now) if now else 0.0
    complete = [episode for episode in episodes if not episode.missing]
    restarts = [gap for gap in gaps if gap.source not in (DEATH, HEARTBEAT_GAP)]
    timeout = chosen.timeout_ms
    longer = [(max(timeout - death.noticed_ms, 0), death.partitions) for death in deaths] if timeout is not None else []
    confidence = "none"
    if restarts:
        sure = sum(restart.confidence != "weak" for restart in restarts) * 2 >= len(restarts)
        confidence = "strong" if sure and chosen.samples >= SAMPLES_FOR_A_QUANTILE else "weak"
    settings = [] if timeout is None else [f"session.timeout.ms={timeout}"]
    if timeout is not None and static_share < 1:
        settings.insert(0, "group.instance.id=<a name that each process keeps over its restarts>")
    text = Sentence(group, complete, restarts, timeouts, static_share, deaths, chosen, avoided).text
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
        sum(ms * partitions for ms, partitions in longer),
        len(deaths),
        chosen.floor_ms,
        static_share,
        confidence,
        "\n".join(settings),
        text,
    )


def said(ms: int) -> str:
    return words.duration(ms).replace(".0 s", " s")


class Sentence(NamedTuple):
    """The advice as a sentence for the report."""

    group: str
    episodes: Sequence[Episode]
    restarts: Sequence[Gap]
    timeouts: Sequence[int]
    static_share: float
    deaths: Sequence[Death]
    chosen: Chosen
    avoided: int

    @property
    def text(self) -> str:
        return " ".join(part for part in (f"{self.group}: {self._found}", self._floor, self._price) if part)

    @property
    def _found(self) -> str:
        chosen = self.chosen
        if chosen.gap_ms is None:
            return "no member was seen to restart, so there is nothing to choose a session timeout by."
        if chosen.timeout_ms is None:
            return (
                f"restarts take up to {said(chosen.gap_ms)}, longer than any sane session timeout; shorten them, or keep the timeout "
                "and remove the members of a deploy by their group.instance.id."
            )
        setting = f"`session.timeout.ms={chosen.timeout_ms}`"
        if self.static_share < 1:
            setting = f"`group.instance.id` plus {setting}"
        if not self.avoided:
            one = len(self.restarts) == 1
            kept = f"{len(self.restarts)} {'restart' if one else 'restarts'} of at most {said(chosen.gap_ms)}"
            return f"{kept} made no rebalance that another setting would have avoided; {setting} is enough for {'it' if one else 'them'}."
        by = max(self._avoided, default=1) - 1
        all = len(self.episodes)
        return (
            f"{self.avoided} of {all} {'rebalance' if all == 1 else 'rebalances'}{self._over} came from restarts of at most {said(by)}; "
            f"{setting} would have left {all - self.avoided}."
        )

    @property
    def _avoided(self) -> list[int]:
        """For each avoidable rebalance, the smallest session timeout that would have avoided it."""
        needed = [episode.avoidable_by_ms for episode in self.episodes if episode.avoidable == YES and episode.avoidable_by_ms is not None]
        return [ms for ms in needed if ms <= (self.chosen.timeout_ms or 0)]

    @property
    def _over(self) -> str:
        moments = [ms for episode in self.episodes for ms in (episode.start_lo_ms, episode.end_ms) if ms is not None]
        took = max(moments) - min(moments) if moments else 0
        return f" in {-(-took // DAY_MS)} days" if took > DAY_MS else f" in {said(took)}" if took else ""

    @property
    def _floor(self) -> str:
        if self.chosen.floor_ms is None:
            return ""
        return f"It must be more than {said(self.chosen.floor_ms)}: heartbeats of healthy members came up to {said(self.chosen.floor_ms // 3)} late."

    @property
    def _price(self) -> str:
        timeout = self.chosen.timeout_ms
        if timeout is None:
            return ""
        later = max((timeout - death.noticed_ms for death in self.deaths), default=timeout - max(self.timeouts, default=timeout))
        happened = "none happened" if not self.deaths else f"{len(self.deaths)} happened"
        if later <= 0:
            return f"Price: none; a member that does not come back is noticed {said(-later)} sooner ({happened})." if later else ""
        return f"Price: up to {said(later)} later detection of a member that does not come back ({happened})."
