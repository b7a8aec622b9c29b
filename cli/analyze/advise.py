"""`tenure analyze advise`: the recommended session timeout, and its cost."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from cli.analyze.opened import check_names, open_tables
from cli.failure import Exit
from cli.shown import Screen, plain

if TYPE_CHECKING:
    from pipeline.rows import CurvePoint


def run(options: argparse.Namespace) -> int:
    screen = Screen.of(options)
    with open_tables(options) as tables:
        from pipeline.groups import NOT_UNDERSTOOD
        from pipeline.on_demand import advice_for
        from pipeline.timeouts import Options

        several_clusters = len(check_names(tables, options)) > 1
        limits = Options(quantile=options.quantile, detect_max_ms=ms(options.max_detect))
        advice = advice_for(tables, options.group, limits, options.cluster)
    if screen.json:
        documents = [{"advice": [row._asdict() for row in cluster.advice], "curve": [point._asdict() for point in cluster.curve]} for cluster in advice]
        screen.document({"clusters": documents})
        return Exit.DONE
    for number, cluster in enumerate(advice):
        if number:
            screen.line()
        if not cluster.advice:
            screen.line(f"{plain(options.group)}: {NOT_UNDERSTOOD}")
        for row in cluster.advice:
            screen.line(plain(f"cluster {row.cluster}: {row.text}" if several_clusters else row.text))
            if row.samples:
                screen.line(f"confidence: {row.confidence}, from {row.samples} {'restart' if row.samples == 1 else 'restarts'}")
            for line in row.setting.splitlines():
                screen.line(f"  {plain(line)}")
        points = changing_points(cluster.curve)
        if points:
            screen.line()
            columns = ["session timeout", "rebalances avoided", "restarts bridged", "not bridged", "unknown", "deaths", "added detection time, in total"]
            rows = [
                (seconds(point.timeout_ms), point.rebalances_avoided, point.bridged, point.not_bridged, point.unknown, point.deaths, seconds(point.added_detection_ms))
                for point in points
            ]
            screen.table(columns, rows)
    return Exit.DONE


def changing_points(curve: Sequence[CurvePoint]) -> list[CurvePoint]:
    """The points at which the curve changes, the first and the last point included."""
    points: list[CurvePoint] = []
    for point in curve:
        if not points or (point.bridged, point.not_bridged, point.rebalances_avoided) != (points[-1].bridged, points[-1].not_bridged, points[-1].rebalances_avoided):
            points.append(point)
    return [*points, curve[-1]] if points and curve[-1] is not points[-1] else points


def ms(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * 1000)


def seconds(ms: int) -> str:
    return f"{ms / 1000:.3f}".rstrip("0").rstrip(".") + " s"
