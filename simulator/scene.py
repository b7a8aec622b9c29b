"""What the clients of a run share."""

from __future__ import annotations

from dataclasses import dataclass

from simulator.course import Course
from simulator.lookups import Lookups
from simulator.memory import Coordinators
from simulator.plan import Plan
from simulator.policy_watch import PolicyWatch
from simulator.promises import Generations, Instances, Offsets, Sessions
from simulator.records import Records
from simulator.replies import Replies
from simulator.topics import Topics
from simulator.world import World


@dataclass(frozen=True)
class Scene:
    world: World
    plan: Plan
    course: Course
    lookups: Lookups
    topics: Topics
    coordinators: Coordinators
    replies: Replies
    offsets: Offsets
    instances: Instances
    generations: Generations
    sessions: Sessions
    records: Records
    policies: PolicyWatch
