"""The policies that a group may have at a moment, known from the replies to the operator, and the promise that no acknowledged one is lost."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from coordinator.policies.declaration import GroupPolicies
from coordinator.policies.door import POLICIES, resolve_known
from coordinator.policies.names import expand_names, join_names
from simulator.world import Broken, Promise, World

SET: Final = 0
DELETE: Final = 1
APPEND: Final = 2
SUBTRACT: Final = 3

Texts = tuple[tuple[str, str], ...]


class Change(NamedTuple):
    """One entry of IncrementalAlterConfigs."""

    name: str
    operation: int
    value: str | None


class PendingChange(NamedTuple):
    """A request of the operator. `before`: each set of policies that the group may have had before."""

    group: str
    changes: Sequence[Change]
    before: list[Texts]


class Period(NamedTuple):
    """Each set of policies that a group may have had, from `since` until its next period."""

    since: int
    texts: tuple[Texts, ...]
    policies: tuple[GroupPolicies, ...]  # the same, parsed and with the broker's defaults, without duplicates


class PolicySettings:
    """Acknowledged policies are never lost: readers get, and the coordinator uses, the policies set last."""

    promise = Promise("policies are kept", "acknowledged policies are those that are read and used, also after a failover")

    def __init__(self, world: World, defaults: GroupPolicies) -> None:
        self._world = world
        self._defaults = defaults
        self._possible: dict[str, list[Texts]] = {}
        self._history: dict[str, list[Period]] = {}
        self._ever: dict[str, dict[GroupPolicies, None]] = {}  # the policies of all periods
        self._open: dict[str, int] = {}  # group -> number of unsettled requests, which may still take effect
        self._changed_at: dict[tuple[str, str], int] = {}  # group, policy -> the last moment at which a change of it may have taken effect
        self._resolved: dict[Texts, GroupPolicies] = {}
        self._unset = Period(0, ((),), (self._resolve(()),))

    # Requests of the operator.

    def send(self, group: str, changes: Sequence[Change]) -> PendingChange:
        before = self.texts(group)
        pending = PendingChange(group, changes, before)
        self._open[group] = self._open.get(group, 0) + 1
        self._set_possible(group, [*before, *(policies_after(texts, changes) for texts in before)])
        self._record_change(pending)
        return pending

    def acknowledged(self, pending: PendingChange) -> None:
        self._settle(pending)
        self._set_possible(pending.group, [policies_after(texts, pending.changes) for texts in pending.before])

    def refused(self, pending: PendingChange) -> None:
        self._settle(pending)
        self._set_possible(pending.group, pending.before)

    def unknown(self, pending: PendingChange) -> None:
        """The request got no usable reply: it may have taken effect before, but cannot from now on."""
        self._settle(pending)

    def read(self, group: str, resolved: Mapping[str, str]) -> None:
        """DescribeConfigs was answered with these policies."""
        texts = as_texts(resolved)
        self._check(group, texts, "DescribeConfigs shows")
        if not self._open.get(group):
            self._set_possible(group, [texts])

    def used(self, group: str, resolved: Mapping[str, str]) -> None:
        """The coordinator has these policies in memory, perhaps not yet in its log."""
        self._check(group, as_texts(resolved), "the coordinator uses")

    def lost_since(self, moment: int) -> None:
        """The power failed, and `offsets.flush` allows the loss of what was acknowledged since `moment`."""
        for group, history in self._history.items():
            self._set_possible(group, [texts for period in history[first_at(history, moment) :] for texts in period.texts])

    def _check(self, group: str, texts: Texts, what: str) -> None:
        possible = self.texts(group)
        if texts not in possible:
            raise Broken(self.promise, f"{what} {dict(texts)} for {group}, although the policies set last are {' or '.join(str(dict(each)) for each in possible)}", group)

    def _settle(self, pending: PendingChange) -> None:
        self._open[pending.group] -= 1
        self._record_change(pending)

    def _record_change(self, pending: PendingChange) -> None:
        for change in pending.changes:
            self._changed_at[pending.group, change.name] = self._world.now

    def _set_possible(self, group: str, possible: list[Texts]) -> None:
        distinct = list(dict.fromkeys(possible))
        self._possible[group] = distinct
        resolved = dict.fromkeys([self._resolve(texts) for texts in distinct])
        self._history.setdefault(group, [self._unset]).append(Period(self._world.now, tuple(distinct), tuple(resolved)))
        self._ever.setdefault(group, dict.fromkeys(self._unset.policies)).update(resolved)

    # Possible policies.

    def texts(self, group: str) -> list[Texts]:
        return self._possible.get(group) or [()]

    def during(self, group: str, first: int, last: int) -> Sequence[GroupPolicies]:
        """Each set of policies, with the broker's defaults, that the group may have had at some moment from `first` to `last`."""
        history = self._history.get(group)
        if history is None:
            return self._unset.policies
        at = first_at(history, first)
        end = bisect_left(history, last + 1, at, key=since_of)
        if end - at == 1:
            return history[at].policies
        return tuple(dict.fromkeys([policies for period in history[at:end] for policies in period.policies]))

    def ever(self, group: str) -> Sequence[GroupPolicies]:
        return tuple(self._ever.get(group, self._unset.policies))

    def changed_at(self, group: str, name: str) -> int:
        """The last moment at which a change of this policy may have taken effect; -1: never."""
        if self._open.get(group):
            return self._world.now
        return self._changed_at.get((group, name), -1)

    def _resolve(self, texts: Texts) -> GroupPolicies:
        resolved = self._resolved.get(texts)
        if resolved is None:
            resolved = self._resolved[texts] = resolve_known(dict(texts), self._defaults)
        return resolved


def since_of(period: Period) -> int:
    return period.since


def first_at(history: Sequence[Period], moment: int) -> int:
    """The index of the period that lasted at the moment: the last one that began before it."""
    return max(0, bisect_left(history, moment, key=since_of) - 1)


def as_texts(resolved: Mapping[str, str]) -> Texts:
    return tuple(sorted(resolved.items()))


def policies_after(texts: Texts, changes: Sequence[Change]) -> Texts:
    """The policies that `texts` become by an accepted request."""
    values = dict(texts)
    for change in changes:
        if change.operation == DELETE:
            values.pop(change.name, None)
            continue
        assert change.value is not None
        value = change.value
        if change.operation in (APPEND, SUBTRACT):
            present = expand_names(values.get(change.name, ""), change.name)
            changed_names = expand_names(value, change.name)
            names = [name for name in present if name not in changed_names] if change.operation == SUBTRACT else list(dict.fromkeys((*present, *changed_names)))
            value = join_names(names)
        if value:
            values[change.name] = value
        else:
            values.pop(change.name, None)
    return as_texts(values)


def requests_in(changes: Sequence[Change]) -> list[str]:
    return [str(change.value) for change in changes if POLICIES[change.name].once and change.operation == SET]
