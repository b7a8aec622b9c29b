"""The assignors: each computes the target of all members of a group. One of your own is a file here and a row of the table."""

from typing import Final

from coordinator.consumer.assignors.members import Assignable, Assignment, Assignor
from coordinator.consumer.assignors.range import assign_ranges
from coordinator.consumer.assignors.uniform import assign_uniformly

ASSIGNORS: Final[dict[str, Assignor]] = {
    "uniform": assign_uniformly,
    "range": assign_ranges,
}

__all__ = ["ASSIGNORS", "Assignable", "Assignment", "Assignor"]
