"""The policies of groups, and the settings of groups of the consumer protocol, as settings of resource type GROUP."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from broker.api.refused import Refused
from broker.api.settings_without_effect import GROUP_SETTINGS
from broker.groups.group_journal import GroupJournal
from broker.groups.shards import Shards
from broker.runtime.clock import Clock
from broker.settings.config import POLICY_PREFIX
from broker.topics.setting_sources import DEFAULT, STATIC_BROKER, SettingSources, Synonym
from coordinator.consumer.config import GROUP_SETTINGS as CONSUMER_SETTINGS
from coordinator.policies.declaration import NONE_TEXT, Names
from coordinator.policies.door import POLICIES, STATUS_PREFIX
from coordinator.policies.names import expand_names, join_names, without_repeats
from protocol.errors import ErrorCode
from protocol.wire import TEXT_BYTES_MAX

GROUP: Final = 8  # DescribeConfigs' code for the source of a group's own settings

class GroupSetting(NamedTuple):
    """One setting of a group, as DescribeConfigs shows it. The first of its `sources` is effective."""

    name: str
    sources: tuple[Synonym, ...]
    kind: str
    documentation: str
    read_only: bool = False


class GroupSettings:
    """Finds the shard of a group and reads or replaces its settings; raises Refused if the shard does not serve."""

    def __init__(self, shards: Shards, clock: Clock, sources: SettingSources) -> None:
        self._shards = shards
        self._clock = clock
        self._sources = sources

    def journal_of(self, group_id: str) -> GroupJournal:
        journal = self._shards.journal_of(group_id)
        if journal.refusal:
            raise Refused(ErrorCode(journal.refusal))
        return journal

    def settings_of(self, group_id: str) -> Mapping[str, str]:
        return self.journal_of(group_id).shard.policies.texts(group_id)

    def entries(self, journal: GroupJournal, group_id: str, names: Collection[str]) -> Iterator[GroupSetting]:
        """The settings of the consumer protocol, the policies set for the group or for all groups, and the group's status; an empty `names` selects all."""
        settings = journal.shard.policies.texts(group_id)
        for name, setting in CONSUMER_SETTINGS.items():
            if not names or name in names:
                own = (Synonym(name, settings[name], GROUP),) if name in settings else ()
                yield GroupSetting(name, (*own, *self._sources.broker_sources(setting.broker_name)), "int", setting.sentence)
        for name in (*POLICIES, *(name for name in settings if name not in POLICIES and name not in CONSUMER_SETTINGS)):
            default = self._sources.given.get(POLICY_PREFIX + name)
            if names and name not in names:
                continue
            sources = []
            if name in settings:
                sources.append(Synonym(name, settings[name], GROUP))
            if default not in (None, NONE_TEXT):
                sources.append(Synonym(POLICY_PREFIX + name, default, STATIC_BROKER))
            if sources:
                policy = POLICIES.get(name)
                kind, text = (policy.type, policy.sentence) if policy else ("string", "A policy that this version does not know; it has no effect.")
                yield GroupSetting(name, tuple(sources), kind, text)
        for name, value in journal.shard.policies.status(group_id).items():
            if not names or name in names:
                yield GroupSetting(name, (Synonym(name, truncated(value), DEFAULT),), "string", "The present state of the group's policies.", True)

    def replace(self, group_id: str, settings: Mapping[str, str], named: Mapping[str, str], validate_only: bool) -> GroupJournal | None:
        """Replace the settings of a group, of which the request names some; returns the journal that stores them.

        If `validate_only`, only check them, and return None. Raises Refused with all problems.
        """
        journal = self.journal_of(group_id)
        settings = {name: without_repeated_names(text, name) for name, text in settings.items()}
        if validate_only:
            problems = journal.shard.policies.refusals(group_id, settings)
        else:
            problems = journal.call(journal.shard.policies.replace, group_id, settings, named, self._clock.now, self._clock.wall)
        if problems:
            raise Refused(ErrorCode.INVALID_CONFIG, ". ".join(problems) + ".")
        return None if validate_only else journal


def check_names(names: Sequence[str]) -> None:
    """Refuse Kafka's group settings and read-only settings: storing them without effect would look like success."""
    for name in names:
        if name in GROUP_SETTINGS:
            raise Refused(
                ErrorCode.INVALID_CONFIG,
                f"{name} belongs to Kafka's group types share and streams, which are not served here: it would have no effect. "
                f"The policies of a group are {', '.join(POLICIES)}.",
            )
        if name.startswith(STATUS_PREFIX):
            raise Refused(ErrorCode.INVALID_CONFIG, f"{name} is read-only: it shows the present state of the group's policies.")


def without_repeated_names(text: str, policy: str) -> str:
    """In a policy of type list: remove repeated names, as Kafka does in values of type list; a list without repeated names, or with a syntax error, is returned as written."""
    try:
        return without_repeats(text, policy) if is_list(policy) else text
    except ValueError:
        return text


def is_list(policy: str) -> bool:
    return isinstance(POLICIES.get(policy), Names)


def changed_names(policy: str, text: str | None, change: str, subtract: bool) -> str:
    """The value of a policy of type list after names, perhaps written as ranges, are added or removed; "" if no name remains.

    Raises ValueError for names or ranges that cannot be read.
    """
    present = expand_names(text, policy) if text else ()
    changed = expand_names(change, policy)
    if subtract:
        removed = frozenset(changed)
        return join_names([name for name in present if name not in removed])
    return join_names(list(dict.fromkeys((*present, *changed))))


def truncated(text: str) -> str:
    """The text, truncated to the longest string that a reply can carry."""
    data = text.encode()
    return text if len(data) <= TEXT_BYTES_MAX else data[: TEXT_BYTES_MAX - 3].decode("utf-8", "ignore") + "..."
