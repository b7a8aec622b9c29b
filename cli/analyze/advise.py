"""`tenure analyze advise`: the recommended session timeout, and its cost."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from cli.analyze.opened import check_group, opened
from cli.failure import EXIT
from cli.shown import Screen, plain

if TYPE_CHECKING:
    from pipeline.rows import CurvePoint


def run(options: argparse.Namespace) -> int:
    screen = Screen.of(options)
    with opened(options) as warehouse:
        from pipeline.asked import advice_for
        from pipeline.timeouts import Options

        check_group(warehouse, options.group)
        found = advice_for(warehouse, options.group, Options(quantile=options.quantile, detect_max_ms=ms(options.max_detect)))
    if screen.json:
        said = [{"advice": [one._asdict() for one in tables.advice], "curve": [one._asdict() for one in tables.curve]} for tables in found]
        screen.document({"clusters": said})
        return EXIT.DONE
    for tables in found:
        for one in tables.advice:
            screen.line(plain(one.text))
            for line in one.setting.splitlines():
                screen.line(f"  {plain(line)}")
        known = turns(tables.curve)
        if known:
            screen.line()
            columns = ["session timeout", "rebalances avoided", "restarts bridged", "not", "not known", "deaths", "noticed later by, together"]
            shown = [
                (seconds(one.timeout_ms), one.rebalances_avoided, one.bridged, one.not_bridged, one.unknown, one.deaths, seconds(one.added_detection_ms))
                for one in known
            ]
            screen.table(columns, shown)
    return EXIT.DONE


def turns(curve: Sequence[CurvePoint]) -> list[CurvePoint]:
    """The points at which the curve changes, and the last one."""
    found: list[CurvePoint] = []
    for one in curve:
        if not found or (one.bridged, one.not_bridged, one.rebalances_avoided) != (found[-1].bridged, found[-1].not_bridged, found[-1].rebalances_avoided):
            found.append(one)
    return [*found, curve[-1]] if found and curve[-1] is not found[-1] else found


def ms(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * 1000)


def seconds(ms: int) -> str:
    return f"{ms / 1000:g} s"
