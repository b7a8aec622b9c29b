"""How sure a row is."""

from __future__ import annotations

from typing import Final

EXACT: Final = "exact"  # notes say so
STRONG: Final = "strong"  # hardly anything else is possible
WEAK: Final = "weak"
NONE: Final = "none"  # not known
