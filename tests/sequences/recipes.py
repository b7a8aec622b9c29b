"""The kinds of mistakes, and how often each was made; rare kinds are chosen first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from random import Random


class MistakeCounts:
    """The number of times each kind of mistake was made in each state; shared by all sequences of a run."""

    def __init__(self) -> None:
        self.made: Counter[tuple[str, ...]] = Counter()

    def rarest(self, chance: Random, kinds: Sequence[tuple[str, ...]], state: str) -> tuple[str, ...]:
        sample = chance.sample(kinds, min(12, len(kinds)))
        kind = min(sample, key=lambda recipe: self.made[(state, *recipe)])
        self.made[(state, *kind)] += 1
        return kind


MEMBER_KINDS = ("own", "own", "stale", "other", "nobody", "empty")
INSTANCE_KINDS = ("own", "own", "none", "unmapped", "other", "blank")
GENERATION_KINDS = ("own", "own", "less", "more", "minus", "zero")
MISTAKEN_IDENTITIES = [
    (do, member, instance, generation)
    for do in ("join", "sync", "beat", "commit", "leave")
    for member in MEMBER_KINDS
    for instance in INSTANCE_KINDS
    for generation in (GENERATION_KINDS if do in ("sync", "beat", "commit") else ("own",))
]
OTHER_MISTAKES = [
    (do, mistake, "", "")
    for do, hows in {
        "join": ("type", "no protocols", "no common", "session", "no group", "reordered", "metadata", "protocol", "pending", "pending"),
        "sync": ("type", "name", "null", "no group", "strangers"),
        "beat": ("no group", "other group"),
        "leave": ("no group", "nobody at all", "twice", "several", "batch", "other group"),
        "commit": ("other group", "nothing", "only unknown", "retention"),
    }.items()
    for mistake in hows
]  # fmt: skip
