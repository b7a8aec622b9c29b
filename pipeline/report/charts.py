"""Charts as inline SVG.

Colours are classes of the page's style sheet. Each mark has a <title>, which browsers show as a tooltip and screen readers read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from math import ceil, log, sqrt
from typing import Any, Final, NamedTuple
from zlib import crc32

from markupsafe import Markup

from history.causes import Family, cause_row
from pipeline.grace import assumed_begin_ms
from pipeline.report.group_key import GroupKey, group_key
from pipeline.report.stretches import GOOD_STATUSES
from pipeline.report.words import counted, plain, short_time, span_text

WIDTH: Final = 960
LEFT: Final = 190  # of the plots of all charts, so that those of one card line up; names are to the left of it
RIGHT: Final = WIDTH - 12
BIN: Final = 6  # rebalances that begin within this width are one bar
LABELLED_MIN: Final = 5  # rebalances of adjacent bars that have their number beside them
SHADES: Final = 9

LEGEND: Final[dict[Family, str]] = {
    "restart": "restarts",
    "came": "members joined",
    "left": "members left",
    "expired": "sessions expired",
    "slow": "slow members",
    "changed": "subscriptions or protocols changed",
    "broker": "the broker",
    "policy": "policies and operators",
    "unknown": "unknown",
}


CONFIDENCE_TEXTS: Final = {
    "exact": "recorded in the logs",
    "strong": "other explanations are unlikely",
    "weak": "the most likely explanation",
    "none": "unknown",
}


def family(cause: str) -> Family:
    return cause_row(cause).family


class Axis:
    """A horizontal time axis."""

    def __init__(self, from_ms: int, to_ms: int) -> None:
        self.from_ms, self.to_ms = from_ms, max(to_ms, from_ms + 1)

    def x(self, ms: float) -> float:
        share = (ms - self.from_ms) / (self.to_ms - self.from_ms)
        return round(LEFT + min(max(share, 0.0), 1.0) * (RIGHT - LEFT), 1)

    def ticks(self) -> list[tuple[int, str]]:
        step = next((step for step in STEPS_MS if (self.to_ms - self.from_ms) / step <= 8), STEPS_MS[-1])
        if (self.to_ms - self.from_ms) / step > 8:
            step *= -(-(self.to_ms - self.from_ms) // (8 * step))
        first = -(-self.from_ms // step) * step
        return [(ms, _tick(ms, step)) for ms in range(first, self.to_ms + 1, step)]

    def to_svg(self, top: float, bottom: float) -> Markup:
        parts = [
            Markup('<line class="grid" x1="{x}" x2="{x}" y1="{top}" y2="{bottom}"/><text class="tick{side}" x="{x}" y="{y}">{text}</text>').format(
                x=self.x(ms), top=top, bottom=bottom, y=bottom + 13, text=text, side=" right" if self.x(ms) > RIGHT - 18 else ""
            )
            for ms, text in self.ticks()
        ]
        return Markup("").join(parts)


MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000
STEPS_MS: Final = (1_000, 5_000, 15_000, MINUTE, 5 * MINUTE, 15 * MINUTE, HOUR, 3 * HOUR, 6 * HOUR, DAY, 2 * DAY, 7 * DAY, 30 * DAY)


def _tick(ms: int, step: int) -> str:
    try:
        at = datetime.fromtimestamp(ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):  # a time outside of the calendar
        return f"{ms} ms"
    if step >= DAY or (at.hour, at.minute, at.second) == (0, 0, 0):
        return at.strftime("%d %b")
    return at.strftime("%H:%M:%S" if step < MINUTE else "%H:%M")


def svg(height: float, label: str, *parts: Markup) -> Markup:
    """A chart. Its names, to the left of the plot, are also a picture of their own: on a narrow screen they stay while the chart is scrolled."""
    inside = Markup("").join(parts)
    return Markup(
        '<div class="chart"><svg class="plot" viewBox="0 0 {width} {height}" role="img" aria-label="{label}"><g id="{id}">{inside}</g></svg>'
        '<svg class="names" viewBox="0 0 {left} {height}" aria-hidden="true"><use href="#{id}"/></svg></div>'
    ).format(width=WIDTH, left=LEFT - 4, height=round(height), label=plain(label), id=f"chart-{crc32(inside.encode(errors='replace')):08x}", inside=inside)


def rect(x: float, y: float, width: float, height: float, kind: str, title: str = "") -> Markup:
    return Markup('<rect class="{kind}" x="{x}" y="{y}" width="{w}" height="{h}">{title}</rect>').format(
        kind=kind, x=round(x, 1), y=round(y, 1), w=round(max(width, 0.8), 1), h=round(height, 1), title=_title(title)
    )


def text(x: float, y: float, content: str, kind: str = "label") -> Markup:
    return Markup('<text class="{kind}" x="{x}" y="{y}">{content}</text>').format(kind=kind, x=round(x, 1), y=round(y, 1), content=plain(content))


def line(points: Sequence[tuple[float, float]], kind: str) -> Markup:
    if not points:
        return Markup("")
    path = " ".join(f"{'M' if at == 0 else 'L'}{x:.1f} {y:.1f}" for at, (x, y) in enumerate(points))
    return Markup('<path class="{kind}" d="{path}"/>').format(kind=kind, path=path)


def _title(content: str) -> Markup:
    return Markup("<title>{}</title>").format(plain(content)) if content else Markup("")


# The charts


def timeline(
    groups: Sequence[dict[str, Any]], from_ms: int, to_ms: int, links: Mapping[GroupKey, str] | None = None, with_cluster: bool = False
) -> Markup:
    """A lane for each group: deploys as bands, and rebalances as bars, with their number as height and their causes as colours."""
    links = links or {}
    lane, top = 36, 6
    axis = Axis(from_ms, to_ms)
    bottom = top + lane * len(groups)
    bars = [_bars(axis, detail["episodes"]["rows"]) for detail in groups]
    most = max((len(bar) for bars_of_group in bars for bar in bars_of_group.values()), default=1)
    parts = [axis.to_svg(top, bottom)]
    for number, detail in enumerate(groups):
        y = top + number * lane
        label = text(0, y + 22, _lane_name(detail, with_cluster) if len(groups) > 1 else "rebalances")
        link = links.get(group_key(detail))
        parts.append(Markup('<a href="{}">{}</a>').format(link, label) if link else label)
        parts.append(Markup('<line class="grid" x1="{left}" x2="{right}" y1="{y}" y2="{y}"/>').format(left=LEFT, right=RIGHT, y=y + lane))
        for deploy in detail["deploys"]["rows"]:
            title = f"deploy {span_text(deploy['start_ms'], deploy['end_ms'])}: {deploy['restarted']} of {counted(deploy['members'], 'member')}, {counted(deploy['rebalances'], 'rebalance')}"
            x = axis.x(deploy["start_ms"])
            parts.append(rect(x - 2, y + 2, axis.x(deploy["end_ms"]) - x + 4, lane - 4, "deploy", title))
        total = 0  # of adjacent bars
        for at, bar in sorted(bars[number].items()):
            parts += _bar(axis, at, y + lane - 2, bar, lane - 6, most)
            total += len(bar)
            if at + BIN not in bars[number]:
                if total >= LABELLED_MIN:
                    label_x, kind = (at - 2, "value before") if at > RIGHT - 30 else (at + BIN + 1, "value")
                    parts.append(text(label_x, y + lane - 10, f"{total:,}", kind))
                total = 0
    return svg(bottom + 20, "rebalances of the groups over time, by cause", *parts)


def _bars(axis: Axis, episodes: Sequence[dict[str, Any]]) -> dict[int, list[dict[str, Any]]]:
    """The rebalances that begin at nearly the same place of the axis, by the left edge of their bar."""
    bars: dict[int, list[dict[str, Any]]] = {}
    for episode in episodes:
        begin = _begin(episode)
        if begin is not None:
            bars.setdefault(LEFT + int((axis.x(begin) - LEFT) // BIN) * BIN, []).append(episode)
    return bars


def _bar(axis: Axis, at: int, bottom: float, episodes: Sequence[dict[str, Any]], highest: float, most: int) -> list[Markup]:
    """A bar whose height grows with the square root of the number of rebalances, with a part for each cause; below it, lines as long as long rebalances."""
    height = 6 + (highest - 6) * sqrt((len(episodes) - 1) / max(most - 1, 1))
    by_kind: dict[str, list[dict[str, Any]]] = {}
    for episode in episodes:
        kind = f"cause-{family(episode['cause'])}" + (" uncertain" if episode["confidence"] in ("weak", "none") else "")
        by_kind.setdefault(f"bar {kind}", []).append(episode)
    parts = [
        rect(axis.x(_begin(episode) or 0), bottom - 3, axis.x(end) - axis.x(_begin(episode) or 0), 3, kind, _episode_title(episode))
        for kind, of_kind in by_kind.items()
        for episode in of_kind
        if (end := episode["end_ms"] if episode["end_ms"] is not None else axis.to_ms) and axis.x(end) - axis.x(_begin(episode) or 0) > BIN
    ]
    y = bottom
    for kind, of_kind in sorted(by_kind.items()):
        share = height * len(of_kind) / len(episodes)
        y -= share
        first, last = of_kind[0], of_kind[-1]
        more = f"{counted(len(of_kind), 'rebalance')} until {span_text(_begin(last), None)}, the first: " if len(of_kind) > 1 else ""
        parts.append(rect(at, y, BIN - 1, share, kind, more + _episode_title(first)))
    return parts


def _begin(episode: dict[str, Any]) -> int | None:
    begin = assumed_begin_ms(episode["start_lo_ms"], episode["start_hi_ms"])
    end: int | None = episode["end_ms"]
    return begin if begin is not None else end


def _episode_title(episode: dict[str, Any]) -> str:
    duration = "" if episode["end_ms"] is None or episode["start_hi_ms"] is None else f", {short_time(episode['end_ms'] - episode['start_hi_ms'])}"
    generation = "?" if episode["to_generation"] is None else episode["to_generation"]
    return f"{span_text(_begin(episode), None)} generation {generation}: {episode['cause'].replace('_', ' ')}{duration} ({episode['confidence']}). {episode['evidence']}"


def _lane_name(detail: dict[str, Any], with_cluster: bool) -> str:
    return f"{_shortened(detail['group'], 14)} in {_shortened(detail['cluster'], 7)}" if with_cluster else _shortened(detail["group"], 25)


def generations(episodes: Sequence[dict[str, Any]], from_ms: int, to_ms: int) -> Markup:
    """The generation number over time; a steep part is a storm."""
    known = [episode for episode in episodes if episode["end_ms"] is not None and episode["to_generation"] is not None]
    if not known:
        return Markup("")
    axis = Axis(from_ms, to_ms)
    numbers = [episode[name] for episode in known for name in ("from_generation", "to_generation") if episode[name] is not None]
    low, high = min(numbers), max(numbers)
    y = _scale(low, high, 120, 8)
    points = [(axis.x(from_ms), y(known[0]["from_generation"] if known[0]["from_generation"] is not None else known[0]["to_generation"]))]
    for episode in known:
        points += [(axis.x(episode["end_ms"]), points[-1][1]), (axis.x(episode["end_ms"]), y(episode["to_generation"]))]
    points.append((axis.x(to_ms), points[-1][1]))
    marks = [
        Markup('<circle class="dot cause-{kind}" cx="{x}" cy="{y}" r="3">{title}</circle>').format(
            kind=family(episode["cause"]), x=axis.x(episode["end_ms"]), y=round(y(episode["to_generation"]), 1), title=_title(f"generation {episode['to_generation']}: {episode['cause']}")
        )
        for episode in known
    ]
    labels = [text(0, y(high) + 4, f"generation {high}"), text(LEFT - 6, y(low) + 4, str(low), "value before")]
    return svg(142, "generations over time", axis.to_svg(8, 122), *labels, line(points, "curve"), *marks)


def ranking(rows: Sequence[tuple[str, float, str]]) -> Markup:
    """Bars; a row is name, value, and text of the value. They are no SVG, so that they fit a narrow screen."""
    highest = max((value for _, value, _ in rows), default=0) or 1.0
    row = Markup('<div class="rank"><span>{name}</span><span class="track"><i style="width:{width}%"></i></span><span class="soft">{value}</span></div>')
    return Markup("").join(row.format(name=_shortened(name, 29), width=round(value / highest * 100, 1), value=value_text) for name, value, value_text in rows)


def cost(groups: Sequence[dict[str, Any]]) -> Markup:
    """The cost of rebalances for each group."""
    return ranking(
        [
            (group["group"], group["partition_seconds_lost"], f"{short_time(group['partition_seconds_lost'] * 1000)}, {counted(group['rebalances'], 'rebalance')}")
            for group in groups
        ]
    )


def timeout_curve(curve: Sequence[dict[str, Any]], advice: dict[str, Any] | None) -> Markup:
    """By session timeout: avoided rebalances on the left axis, added detection time of the observed crashes on the right."""
    if len(curve) < 2 or not any(point["rebalances_avoided"] for point in curve):
        return Markup("")
    first, last = curve[0]["timeout_ms"], curve[-1]["timeout_ms"]
    avoided = max(point["rebalances_avoided"] for point in curve)
    later = max(max(point["added_detection_ms"], 0) for point in curve)
    top, bottom = 10.0, 190.0
    x = _timeout_axis(first, last)
    y_avoided, y_later = _scale(0, avoided, bottom, top), _scale(0, later, bottom, top)
    parts = _timeout_grid(x, first, last, top, bottom)
    steps: list[tuple[float, float]] = []
    for point in curve:
        if steps:
            steps.append((x(point["timeout_ms"]), steps[-1][1]))
        steps.append((x(point["timeout_ms"]), y_avoided(point["rebalances_avoided"])))
    parts.append(line(steps, "curve good"))
    parts.append(line([(x(point["timeout_ms"]), y_later(max(point["added_detection_ms"], 0))) for point in curve], "curve price"))
    parts += [text(0, top + 8, f"{avoided} avoided"), text(0, top + 26, f"{short_time(later)} later", "value"), text(LEFT - 6, bottom, "0", "value before")]
    parts += _timeout_rules(advice, x, first, last, top, bottom)
    return svg(bottom + 24, "rebalances avoided and detection time by session timeout", *parts)


def _timeout_axis(first: float, last: float) -> Callable[[float], float]:
    """A logarithmic axis; times outside of it are at its ends."""
    return lambda ms: LEFT + (log(min(max(ms, first, 1), last)) - log(first)) / ((log(last) - log(first)) or 1) * (RIGHT - LEFT)


def _timeout_grid(x: Callable[[float], float], first: float, last: float, top: float, bottom: float) -> list[Markup]:
    return [
        Markup('<line class="grid" x1="{x}" x2="{x}" y1="{top}" y2="{bottom}"/>').format(x=round(x(ms), 1), top=top, bottom=bottom)
        + text(x(ms), bottom + 14, short_time(ms), "tick right" if x(ms) > RIGHT - 18 else "tick middle")
        for ms in (1_000, 6_000, 15_000, 45_000, 120_000, 300_000, 900_000, 1_800_000)
        if first <= ms <= last
    ]


def _timeout_rules(advice: dict[str, Any] | None, x: Callable[[float], float], first: float, last: float, top: float, bottom: float) -> list[Markup]:
    """Vertical lines at the current and the recommended session timeout."""
    parts = []
    for name, ms in (("now", advice and advice["current_max_ms"]), ("advised", advice and advice["recommended_ms"])):
        if ms and first <= ms <= last:
            at = x(ms)
            label = (at - 4, "value before") if at > RIGHT - 110 else (at + 4, "value")
            parts.append(line([(at, top), (at, bottom)], f"rule {name}"))
            parts.append(text(label[0], top + (26 if name == "now" else 12), f"{name}: {short_time(ms)}", label[1]))
    return parts


def distribution(gaps: Sequence[dict[str, Any]], curve: Sequence[dict[str, Any]], advice: dict[str, Any] | None) -> Markup:
    """The cumulative distribution of restart durations, on the axis of `timeout_curve`."""
    known = sorted(gap["gap_hi_ms"] for gap in gaps if gap["gap_hi_ms"] is not None and gap["returned"])
    if len(known) < 2:
        return Markup("")
    first, last = (curve[0]["timeout_ms"], curve[-1]["timeout_ms"]) if len(curve) > 1 else (max(known[0], 1), known[-1])
    top, bottom = 10.0, 130.0
    x, y = _timeout_axis(first, last), _scale(0, 1, bottom, top)
    points = [(x(first), y(0))]
    for at, gap in enumerate(known, 1):
        points += [(x(gap), points[-1][1]), (x(gap), y(at / len(known)))]
    points.append((x(last), points[-1][1]))
    parts = [*_timeout_grid(x, first, last, top, bottom), line(points, "curve"), text(0, top + 8, "100% of restarts"), text(LEFT - 6, bottom, "0%", "value before")]
    parts += _timeout_rules(advice, x, first, last, top, bottom)
    return svg(bottom + 24, "how long restarts took", *parts)


def heat_map(lag: dict[str, Any], status: Sequence[dict[str, Any]], from_ms: int, to_ms: int) -> Markup:
    """Lag by partition and time, in shades up to the group's highest lag; `heat_key` is the legend. It is red only where the status is not good."""
    rows = lag["partitions"]
    if not rows:
        return Markup("")
    lag_max = _highest_lag(lag)
    axis = Axis(from_ms, to_ms)
    troubles: dict[tuple[str, int], list[tuple[int, int]]] = {}
    for each in status:
        if each["status"] not in GOOD_STATUSES:
            troubles.setdefault((each["topic"], each["topic_partition"]), []).append((each["from_ms"], each["to_ms"]))
    height = 16 if len(rows) <= 24 else 9
    bottom = 4 + height * len(rows)
    parts = []
    for number, row in enumerate(rows):
        y = 4 + number * height
        name = f"{row['topic']}-{row['partition']}"
        if height > 9 or number % 2 == 0:
            parts.append(text(0, y + min(height - 4, 12), _shortened(name, 30), "label small"))
        is_bad = [False] * len(row["lag"])
        for since, until_ms in troubles.get((row["topic"], row["partition"]), ()):
            for at in range(max((since - lag["from_ms"]) // lag["step_ms"], 0), min((until_ms - lag["from_ms"]) // lag["step_ms"] + 1, len(is_bad))):
                is_bad[at] = True
        for begin, end, cell in _runs(row["lag"], is_bad, lag_max):
            x, until = axis.x(lag["from_ms"] + begin * lag["step_ms"]), axis.x(lag["from_ms"] + end * lag["step_ms"])
            kind = f"heat heat-{_shade(cell, lag_max)}" + (" bad" if is_bad[begin] else "")
            parts.append(rect(x, y, until - x, height - 1, kind, f"{name} {span_text(lag['from_ms'] + begin * lag['step_ms'], None)}: lag {cell}"))
    return svg(bottom + 20, "lag by partition and time", axis.to_svg(bottom, bottom), *parts)


def heat_key(lag: dict[str, Any]) -> Markup:
    """The legend of the heat map."""
    lag_max = _highest_lag(lag)
    lags = [lag_max * shade**2 // SHADES**2 for shade in range(SHADES + 1)]  # the highest lag of each shade
    shades = [shade for shade in range(SHADES + 1) if not shade or lags[shade] > lags[shade - 1]]  # small lags do not have all of them
    marks = [rect(14 * place, 0, 14, 12, f"heat-{shade}", f"up to {counted(lags[shade], 'record')} behind") for place, shade in enumerate(shades)]
    width = 14 * len(shades)
    key = Markup('<svg class="key" viewBox="0 0 {w} 12" width="{w}" height="12" role="img" aria-label="shades">{marks}</svg>').format(
        w=width, marks=Markup("").join(marks)
    )
    return Markup("{low}{key} {high} behind").format(low="0 " if lag_max else "", key=key, high=counted(lag_max, "record"))


def _highest_lag(lag: dict[str, Any]) -> int:
    return max((cell or 0 for row in lag["partitions"] for cell in row["lag"]), default=0)


def _shade(cell: int, lag_max: int) -> int:
    """The shade grows with the square root of the lag, so that differences in small lags are visible."""
    return min(ceil(sqrt(cell / lag_max) * SHADES - 1e-9), SHADES) if cell and lag_max else 0


def _runs(cells: Sequence[int | None], is_bad: Sequence[bool], lag_max: int) -> list[tuple[int, int, int]]:
    """Adjacent cells with the same shade, all bad or none, as (begin, end, highest lag)."""
    runs: list[tuple[int, int, int]] = []
    shade = None
    for at, cell in enumerate(cells):
        if cell is None:
            shade = None
            continue
        cell_shade = _shade(cell, lag_max), is_bad[at]
        if runs and cell_shade == shade and runs[-1][1] == at:
            begin, _, highest = runs[-1]
            runs[-1] = (begin, at + 1, max(highest, cell))
        else:
            runs.append((at, at + 1, cell))
        shade = cell_shade
    return runs


class Mark(NamedTuple):
    from_ms: int
    to_ms: int
    kind: str
    title: str


def status_strip(rows: Sequence[dict[str, Any]], from_ms: int, to_ms: int) -> Markup:
    """The status of each partition over time."""
    lanes: dict[tuple[str, int], list[Mark]] = {}
    not_ok = set()
    for row in rows:
        lane = (row["topic"], row["topic_partition"])
        title = f"{lane[0]}-{lane[1]} {span_text(row['from_ms'], row['to_ms'])}: {row['status']} ({row['rule']})"
        lanes.setdefault(lane, []).append(Mark(row["from_ms"], row["to_ms"], f"status-{row['status'].lower()}", title))
        if row["status"] not in GOOD_STATUSES:
            not_ok.add(lane)
    lanes_shown = sorted(sorted(lanes, key=lambda lane: (lane not in not_ok, lane))[:16])
    return _strips("status of the partitions over time", [(f"{topic}-{number}", lanes[topic, number]) for topic, number in lanes_shown], from_ms, to_ms)


def coverage(rows: Sequence[dict[str, Any]], from_ms: int, to_ms: int) -> Markup:
    """Complete and incomplete ranges of each log over time."""
    lanes: dict[tuple[str, str, int], list[Mark]] = {}
    for row in rows:
        begin = row["from_ms"] if row["from_ms"] is not None else from_ms
        end = row["to_ms"] if row["to_ms"] is not None else begin
        title = f"{row['log']}-{row['partition']} offsets {row['from_offset']} to {row['to_offset']}: {'complete' if row['complete'] else row['why']}"
        mark = Mark(begin, end, "status-ok" if row["complete"] else "status-unknown", title)
        lanes.setdefault((row["cluster"], row["log"], row["partition"]), []).append(mark)
    lanes_shown = sorted({(row["cluster"], row["log"], row["partition"]) for row in rows if not row["complete"]})[:30]
    return _strips("completeness of the logs", [(f"{lane[1]}-{lane[2]}", lanes[lane]) for lane in lanes_shown], from_ms, to_ms)


def _strips(label: str, lanes: Sequence[tuple[str, Sequence[Mark]]], from_ms: int, to_ms: int) -> Markup:
    """A lane for each name, with its marks over time."""
    if not lanes:
        return Markup("")
    axis = Axis(from_ms, to_ms)
    bottom = 4 + 14 * len(lanes)
    parts = []
    for number, (name, marks) in enumerate(lanes):
        y = 4 + number * 14
        parts.append(text(0, y + 10, _shortened(name, 30), "label small"))
        for mark in marks:
            x = axis.x(mark.from_ms)
            parts.append(rect(x, y, axis.x(mark.to_ms) - x, 12, mark.kind, mark.title))
    return svg(bottom + 20, label, axis.to_svg(bottom, bottom), *parts)


def _scale(low: float, high: float, bottom: float, top: float) -> Any:
    span = (high - low) or 1
    return lambda value: round(bottom - (value - low) / span * (bottom - top), 1)


def _shortened(name: str, length: int) -> str:
    name = plain(name)
    return name if len(name) <= length else name[: length - 1] + "…"


__all__ = ["LEGEND", "cost", "coverage", "distribution", "family", "generations", "heat_key", "heat_map", "ranking", "status_strip", "timeline", "timeout_curve"]
