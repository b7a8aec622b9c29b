"""The assignors: each computes the target of all members of a group. One of your own is a file here and a row of the table: docs/assignors.md."""

from typing import Final

from coordinator.consumer.assignors.members import Assignable, Assignment, ServerAssignor
from coordinator.consumer.assignors.range import RANGE
from coordinator.consumer.assignors.uniform import UNIFORM

# By name. The first is used if no member asks for one.
ASSIGNORS: Final[dict[str, ServerAssignor]] = {
    assignor.name: assignor
    for assignor in (
        UNIFORM,
        RANGE,
    )
}

__all__ = ["ASSIGNORS", "Assignable", "Assignment", "ServerAssignor"]
