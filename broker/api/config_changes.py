"""Change settings: those of topics and groups change at once; those of the broker cannot change while it runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Mapping, Sequence
from enum import IntEnum
from typing import Any, NamedTuple, Protocol

from broker.api.config_resources import ConfigResourceType, authorization_error, check_broker, check_topic_name, find_topic
from broker.api.group_policies import GroupSettings, check_names
from broker.api.node_drain import check_live
from broker.api.parts import BrokerParts
from broker.api.refused import Refused
from broker.api.topic_checks import check_writable
from broker.groups.group_journal import GroupJournal
from broker.groups.held_replies import GroupParts
from broker.net.dispatch import Call
from broker.net.long_requests import LOOKUP_COST
from broker.runtime.node import names_drained
from broker.security.authorizer import Operation
from broker.topics.settings import settings_problem
from protocol.errors import ErrorCode
from protocol.wire import Steps

CHANGE_COST = 3

# By resource type: why its settings cannot be changed.
FIXED = {
    ConfigResourceType.BROKER: "The broker reads its settings at its start, and none can be changed while it runs.",
    ConfigResourceType.BROKER_LOGGER: "Log levels cannot be changed while the broker runs: start it with another log.level.",
    ConfigResourceType.CLIENT_METRICS: "This broker collects no client metrics, so it has no subscriptions to them.",
}


class AlterOperation(IntEnum):
    """Operation codes of IncrementalAlterConfigs."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class Setting(Protocol):
    name: str
    value: str | None


class ConfigResource(Protocol):
    resource_type: int
    resource_name: str

    @property
    def configs(self) -> Sequence[Setting]: ...


Result = tuple[ErrorCode, str | None, int, str]  # error, message, kind and name of one resource


class Edit(NamedTuple):
    """Compute the new settings of a topic or group from the present ones and the resource in the request."""

    of_topic: Callable[[Mapping[str, str], ConfigResource], dict[str, str]]
    of_group: Callable[[Mapping[str, str], ConfigResource], dict[str, str]]
    drained: Callable[[ConfigResource], bool] | None = None  # whether the resource drains or undrains a node; None: the API cannot


class ConfigChanges:
    def __init__(self, parts: BrokerParts) -> None:
        self._node = parts.node
        self._topics = parts.topics
        self._registry = parts.registry_journal
        self._partitions = parts.partitions
        self._authorizer = parts.authorizer
        self._groups = GroupSettings(parts.shards, parts.clock, parts.setting_sources)
        self._drain = parts.drain

    def answer(
        self,
        call: Call,
        resources: Sequence[ConfigResource],
        kinds: Container[int],
        validate_only: bool,
        edit: Edit,
        reply_of: Callable[[list[Result]], Any],
    ) -> Steps[None]:
        """Apply the changes and reply when they are durable. `reply_of` makes a reply with one response for each result."""
        changed = GroupParts()  # by the resource's index in the request
        hold = self._topics.hold
        reply = reply_of((yield from self._apply(call, resources, kinds, validate_only, edit, changed)))

        def refuse(number: int, error: int) -> None:
            reply.responses[number].error_code = error
            reply.responses[number].error_message = ErrorCode(error).message

        def refuse_others(error: int) -> None:
            for number in set(range(len(resources))) - changed.numbers:
                refuse(number, error)

        if hold is not self._topics.hold:  # replayed meanwhile: changes in the reply may be undone
            refuse_others(ErrorCode.KAFKA_STORAGE_ERROR)
        if changed:
            changed.answer(call, reply, refuse, self._registry, refuse_others)
        else:
            call.reply = reply
            self._registry.hold_reply(call)

    def _apply(
        self,
        call: Call,
        resources: Sequence[ConfigResource],
        kinds: Container[int],
        validate_only: bool,
        edit: Edit,
        changed: GroupParts,
    ) -> Steps[list[Result]]:
        occurrences: Counter[tuple[int, str]] = Counter()
        for resource in resources:
            occurrences[resource.resource_type, resource.resource_name] += 1
            yield LOOKUP_COST
        results: list[Result] = []
        for number, resource in enumerate(resources):
            kind, name = resource.resource_type, resource.resource_name
            error, message = ErrorCode.NONE, None
            yield CHANGE_COST + len(resource.configs) // 2
            try:
                if occurrences[kind, name] > 1:
                    raise Refused(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
                _check_names_and_values(resource)
                if kind not in kinds:
                    raise Refused(ErrorCode.INVALID_REQUEST, f"Unknown resource type {kind}")
                drains = kind == ConfigResourceType.BROKER and edit.drained is not None and self._drain is not None and names_drained(resource.configs)
                if drains and self._drain is not None:
                    check_live(self._drain, name)
                if kind == ConfigResourceType.BROKER_LOGGER or (kind == ConfigResourceType.BROKER and name):
                    check_broker(name, self._node.id)
                unauthorized = authorization_error(self._authorizer, call, Operation.ALTER_CONFIGS, kind, name)
                if unauthorized:
                    raise Refused(unauthorized)
                if kind == ConfigResourceType.TOPIC:
                    self._alter_topic(resource, validate_only, edit)
                elif kind == ConfigResourceType.GROUP:
                    journal = self._alter_group(resource, validate_only, edit)
                    if journal is not None:
                        changed.add(journal, number)
                elif drains:
                    self._drain_or_undrain(resource, validate_only, edit)
                elif resource.configs:  # an empty change is accepted
                    raise Refused(ErrorCode.INVALID_REQUEST, FIXED[ConfigResourceType(kind)])
            except Refused as refused:
                error, message = refused.error, refused.message
            results.append((error, message, kind, name))
        return results

    def _drain_or_undrain(self, resource: ConfigResource, validate_only: bool, edit: Edit) -> None:
        assert edit.drained is not None
        assert self._drain is not None
        if len(resource.configs) > 1:
            raise Refused(ErrorCode.INVALID_REQUEST, FIXED[ConfigResourceType.BROKER])
        drained = edit.drained(resource)
        if not validate_only and drained != self._drain.drained:
            self._drain.set_drained(drained)

    def _alter_topic(self, resource: ConfigResource, validate_only: bool, edit: Edit) -> None:
        # Several things may be wrong; as in Kafka, the reply has the error of the first check that fails.
        name = resource.resource_name
        present = self._topics.by_name.get(name)
        settings = edit.of_topic({} if present is None else present.settings, resource)
        if not name:
            raise Refused(ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed.")
        check_topic_name(name)
        problem = settings_problem(list(settings.items()))
        if problem is not None:
            raise Refused(ErrorCode.INVALID_CONFIG, problem)
        topic = find_topic(self._topics, name, f"The topic '{name}' does not exist.")
        if topic.internal:
            raise Refused(ErrorCode.INVALID_REQUEST, f"The logs of '{name}' follow the broker's settings, so the settings of the topic cannot be changed.")
        if validate_only or settings == topic.settings:
            return
        check_writable(self._registry)
        self._partitions.altered(self._topics.alter(name, settings))

    def _alter_group(self, resource: ConfigResource, validate_only: bool, edit: Edit) -> GroupJournal | None:
        """Change the policies of a group; returns the journal that stores the change, or None if `validate_only`."""
        name = resource.resource_name
        if not name:
            raise Refused(ErrorCode.INVALID_REQUEST, "Default group resources are not allowed.")
        settings = edit.of_group(self._groups.settings_of(name), resource)
        check_names([setting.name for setting in resource.configs if setting.name in settings])
        named = {setting.name: settings[setting.name] for setting in resource.configs if setting.name in settings}
        return self._groups.replace(name, settings, named, validate_only)


def _check_names_and_values(resource: ConfigResource) -> None:
    if len({setting.name for setting in resource.configs}) < len(resource.configs):
        raise Refused(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    nulls = [
        setting.name
        for setting in resource.configs
        if setting.value is None and getattr(setting, "config_operation", AlterOperation.SET) != AlterOperation.DELETE
    ]
    if nulls:
        raise Refused(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {', '.join(nulls)}")
