"""How a policy is declared: its name, kind and one sentence. From that follow its parser, its limits in words, and how it is shown.

A value is stored as the operator wrote it. A group's own values apply over the broker's defaults (`door.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Final, NamedTuple

from coordinator.policies.names import NAMES_MAX, expand_names

TIMEOUT_MS_MIN: Final = 1_000
TIMEOUT_MS_MAX: Final = 7 * 24 * 3_600_000
TARGET_SIZE_MAX: Final = 10_000
REQUEST_CHARS_MAX: Final = 1_000

NONE_TEXT: Final = "none"  # as a group's value: the broker's default does not apply

PolicyValue = int | bool | str | tuple[str, ...]


class GroupPolicies:
    """The effective policies of one group: the parsed value of each that is set. Equal if the values are."""

    __slots__ = ("_key", "own", "values")

    def __init__(self, values: Mapping[str, PolicyValue] | None = None, own: frozenset[str] = frozenset()) -> None:
        """`own`: the policies set for the group itself, not as a default of the broker."""
        self.values: dict[str, PolicyValue] = dict(values or {})
        self.own = own
        self._key = frozenset(self.values.items())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, GroupPolicies) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    def __bool__(self) -> bool:
        return bool(self.values)

    def __repr__(self) -> str:
        return f"GroupPolicies({self.values})"


NO_POLICIES: Final = GroupPolicies()


class InConsumerGroups(NamedTuple):
    """Whether a policy applies to groups of the consumer protocol (KIP-848), and what it does there, or why not."""

    applies: bool
    words: str


CLASSIC_ONLY: Final = InConsumerGroups(False, "it acts on requests of the classic protocol alone")


def not_in_consumer_groups(why: str) -> InConsumerGroups:
    return InConsumerGroups(False, why)


class Policy:
    """One policy. `needs`: the policy without which a broker's default of this one does not apply."""

    type: ClassVar[str] = "string"  # in DescribeConfigs
    limits: str = ""  # the accepted values, in words
    samples: tuple[str, ...] = ()  # values for tests and the simulator; empty: they make their own
    has_default: ClassVar[bool] = True  # the broker has a setting group.policy.NAME
    once: ClassVar[bool] = False  # setting it does something once; it is not in force afterwards

    def __init__(self, name: str, sentence: str, needs: str = "", *, consumers: InConsumerGroups = CLASSIC_ONLY) -> None:
        self.name = name
        self.sentence = sentence
        self.needs = needs
        self.consumers = consumers

    @property
    def accepted(self) -> str:
        """The accepted values of a group, in words."""
        return f"{self.limits}, {NONE_TEXT}" if self.has_default else self.limits

    @property
    def text(self) -> str:
        """The policy in words, with its accepted values."""
        return f"{self.sentence} Values: {self.accepted}."

    def parse(self, text: str) -> PolicyValue:
        """The value. Raises ValueError with a sentence that names the accepted values."""
        raise NotImplementedError


class Number(Policy):
    def of(self, policies: GroupPolicies) -> int | None:
        value = policies.values.get(self.name)
        assert value is None or isinstance(value, int)
        return value


class Timeout(Number):
    type: ClassVar[str] = "long"
    limits = f"{TIMEOUT_MS_MIN} to {TIMEOUT_MS_MAX}"
    samples: tuple[str, ...] = ("2000", "5000", "10000")

    def parse(self, text: str) -> PolicyValue:
        value = _number(text)
        if value is None or not TIMEOUT_MS_MIN <= value <= TIMEOUT_MS_MAX:
            raise ValueError(
                f"{self.name}: {text!r} is not a timeout; write milliseconds from {TIMEOUT_MS_MIN} (1 s) to {TIMEOUT_MS_MAX} (7 days)"
            )
        return value


class Size(Number):
    type: ClassVar[str] = "int"
    limits = f"1 to {TARGET_SIZE_MAX}"
    samples: tuple[str, ...] = ("1", "2", "3")

    def parse(self, text: str) -> PolicyValue:
        value = _number(text)
        if value is None or not 1 <= value <= TARGET_SIZE_MAX:
            raise ValueError(f"{self.name}: {text!r} is not a number of members; write a number from 1 to {TARGET_SIZE_MAX}")
        return value


class Switch(Policy):
    type: ClassVar[str] = "boolean"
    limits = "true, false"
    samples: tuple[str, ...] = ("true", "false")

    def parse(self, text: str) -> PolicyValue:
        if text not in ("true", "false"):
            raise ValueError(f"{self.name}: {text!r} is not a switch; write true or false")
        return text == "true"

    def of(self, policies: GroupPolicies) -> bool:
        return policies.values.get(self.name) is True


class Choice(Switch):
    """A switch whose values have words: the first stands for off."""

    type: ClassVar[str] = "string"

    def __init__(self, name: str, off: str, on: str, sentence: str, *, consumers: InConsumerGroups = CLASSIC_ONLY) -> None:
        super().__init__(name, sentence, consumers=consumers)
        self.on = on
        self.limits = f"{off}, {on}"
        self.samples = (on, off)

    def parse(self, text: str) -> PolicyValue:
        if text not in self.samples:
            raise ValueError(f"{self.name}: {text!r} is unknown; write {self.samples[1]} or {self.on}")
        return text == self.on


class Names(Policy):
    type: ClassVar[str] = "list"
    limits = f"at most {NAMES_MAX} names"
    has_default: ClassVar[bool] = False

    def parse(self, text: str) -> PolicyValue:
        names = expand_names(text, self.name)
        if not names:
            raise ValueError(f"{self.name}: the list is empty; name at least one instance, or delete the policy")
        return names

    def of(self, policies: GroupPolicies) -> tuple[str, ...] | None:
        value = policies.values.get(self.name)
        assert value is None or isinstance(value, tuple)
        return value


class Request(Policy):
    """The reason of something that the operator asks for once."""

    limits = f"at most {REQUEST_CHARS_MAX} characters"
    has_default: ClassVar[bool] = False
    once: ClassVar[bool] = True

    def parse(self, text: str) -> PolicyValue:
        if not text or len(text) > REQUEST_CHARS_MAX:
            raise ValueError(f"{self.name}: give the reason of the rebalance, at most {REQUEST_CHARS_MAX} characters")
        return text


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 18 else None
