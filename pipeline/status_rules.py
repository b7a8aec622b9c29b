"""The rules of a partition's status, by name; `status.py` judges many moments at once by them.

`burrow` is the evaluation of Burrow's wiki, to the second. `tenure` is ours. It differs where Burrow raises false alarms: a window
has at least ten minutes, of one commit in 15 seconds; a partition without new records is not stopped; the time of rebalances and of
a coordinator that is away does not count; and what is not known is not OK.
"""

from __future__ import annotations

from typing import Final

# From good to bad; a group has the worst status of its partitions.
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
