"""The names of statuses and rules; `status.py` evaluates them.

The ruleset `burrow` follows Burrow's wiki, with times in whole seconds. `tenure` avoids its false alarms: a window spans at least ten minutes and has
one commit per 15 seconds; a partition without new records is not stopped; rebalances and outages of the coordinator do not count; and an
unknown lag is not OK.
"""

from __future__ import annotations

from typing import Final

# From good to bad. A group has the worst status of its partitions.
SEVERITY: Final = ("OK", "UNKNOWN", "WARN", "UNOWNED", "REWIND", "STALL", "STOP", "LOST")

BURROW_WINDOW: Final = 10
COMMITS_MIN: Final = 10
WINDOW_MS_MIN: Final = 10 * 60_000
WINDOW_MS_MAX: Final = 60 * 60_000

Verdict = tuple[str, str]  # status and rule

NO_LAG: Final = "OK", "no-lag"
NO_LAG_IN_WINDOW: Final = "OK", "no-lag-in-window"
REWIND: Final = "REWIND", "offset-fell"
STOP: Final = "STOP", "commits-stopped"
STALL: Final = "STALL", "offset-stands"
WARN: Final = "WARN", "lag-never-falls"
MOVING: Final = "OK", "lag-falls"
LOST: Final = "LOST", "deleted-before-read"
UNKNOWN: Final = "UNKNOWN", "no-end-offset"
UNOWNED: Final = "UNOWNED", "no-member-has-it"
FEW: Final = "OK", "few-commits"
VERDICTS: Final = (NO_LAG, NO_LAG_IN_WINDOW, REWIND, STOP, STALL, WARN, MOVING, LOST, UNKNOWN, UNOWNED, FEW)
