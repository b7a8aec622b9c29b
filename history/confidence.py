"""How sure a statement about a group is: of a row in the tables of the pipeline, or of a cause that is not in notes."""

from __future__ import annotations

from typing import Final

EXACT: Final = "exact"  # from notes
STRONG: Final = "strong"  # inferred, other explanations are unlikely
WEAK: Final = "weak"
NONE: Final = "none"  # unknown
