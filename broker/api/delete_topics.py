"""DeleteTopics: delete topics by name or id."""

from __future__ import annotations

from broker.api.parts import Parts
from broker.api.refused import Refused, short
from broker.api.topic_checks import REGISTRY_SUSPENDED
from broker.groups.journal import Journal
from broker.net.dispatch import Call, Response, Route
from broker.security.authorizer import Authorizer, Operation, cluster_allowed, topic_allowed
from broker.topics.deletions import Deletions
from broker.topics.registry import NO_ID, Topic, Topics
from protocol.errors import ErrorCode
from protocol.messages.delete_topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState

BY_ID_FROM = 6


def route(parts: Parts) -> Route:
    handler = DeleteTopics(parts.topics, parts.registry, parts.deletions, parts.authorizer)
    return Route(DeleteTopicsRequest, handler.handle, refuse)


class DeleteTopics:
    def __init__(self, topics: Topics, registry: Journal, deletions: Deletions, authorizer: Authorizer) -> None:
        self._topics = topics
        self._registry = registry
        self._deletions = deletions
        self._authorizer = authorizer

    def handle(self, call: Call, request: DeleteTopicsRequest) -> Response | None:
        wanted = requested_topics(request, call.version)
        if request.timeout_ms <= 0:
            return DeleteTopicsResponse(responses=[_result(one.name, one.topic_id, ErrorCode.REQUEST_TIMED_OUT, None) for one in wanted])
        results, single = without_duplicates(wanted)
        may_all = cluster_allowed(self._authorizer, call, Operation.DELETE)
        going: dict[str, DeletableTopicResult] = {}
        for one in single:
            result = DeletableTopicResult(one.name, one.topic_id, ErrorCode.NONE, None)
            try:
                topic = self._find(call, one, result, may_all)
                result.name, result.topic_id = topic.name, topic.id
                if topic.name in going:  # named twice, by name and by id
                    going[topic.name].error_code = ErrorCode.INVALID_REQUEST
                    going[topic.name].error_message = "The provided topic name maps to an ID that was already supplied."
                    continue
                going[topic.name] = result
            except Refused as why:
                result.error_code, result.error_message = why.error, why.message
            results.append(result)
        for name in [name for name, result in going.items() if result.error_code or not self._check_deletable(name, result)]:
            del going[name]
        call.reply = DeleteTopicsResponse(responses=results)
        if not going:
            self._registry.reply(call)
            return None

        def done(error: int) -> None:
            for result in going.values():
                if error:
                    result.error_code, result.error_message = error, ErrorCode(error).message
            call.release()

        self._deletions.delete(going, done)
        return None

    def _find(self, call: Call, one: DeleteTopicState, result: DeletableTopicResult, may_all: bool) -> Topic:
        """Find the topic if the caller may delete it; its name is shown only to callers that may describe it."""
        authorizer = self._authorizer
        if one.name is None:
            topic = self._topics.by_id.get(one.topic_id)
            if topic is None:
                raise _refused(ErrorCode.UNKNOWN_TOPIC_ID)
            name = topic.name
        else:
            name = one.name
            topic = self._topics.by_name.get(name)
        if topic is None and (may_all or topic_allowed(authorizer, call, Operation.DESCRIBE, name)):
            raise _refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if topic is None or not (may_all or topic_allowed(authorizer, call, Operation.DELETE, name)):
            if one.name is None and topic_allowed(authorizer, call, Operation.DESCRIBE, name):
                result.name = name
            raise _refused(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        return topic

    def _check_deletable(self, name: str, result: DeletableTopicResult) -> bool:
        if self._topics.by_name[name].internal:
            result.error_code = ErrorCode.INVALID_TOPIC_EXCEPTION
            result.error_message = f"Groups live in '{name}': it cannot be deleted."
        elif not self._registry.writable:
            result.error_code, result.error_message = ErrorCode.KAFKA_STORAGE_ERROR, REGISTRY_SUSPENDED
        return not result.error_code


def _refused(error: ErrorCode) -> Refused:
    return Refused(error, error.message)


def requested_topics(request: DeleteTopicsRequest, version: int) -> list[DeleteTopicState]:
    if version >= BY_ID_FROM:
        return request.topics
    return [DeleteTopicState(name, NO_ID) for name in request.topic_names]


def without_duplicates(wanted: list[DeleteTopicState]) -> tuple[list[DeletableTopicResult], list[DeleteTopicState]]:
    """Split the request into refusals of invalid or repeated topics, and valid topics."""
    refusals: list[DeletableTopicResult] = []
    names: dict[str, int] = {}
    ids: dict[bytes, int] = {}
    for one in wanted:
        if one.name is not None and one.topic_id != NO_ID:
            message = "You may not specify both topic name and topic id."
        elif one.name is not None:
            names[one.name] = names.get(one.name, 0) + 1
            continue
        elif one.topic_id != NO_ID:
            ids[one.topic_id] = ids.get(one.topic_id, 0) + 1
            continue
        else:
            message = "Neither topic name nor id were specified."
        refusals.append(_result(one.name, one.topic_id, ErrorCode.INVALID_REQUEST, message))
    single: list[DeleteTopicState] = []
    for name, times in names.items():
        if times > 1:
            refusals.append(_result(name, NO_ID, ErrorCode.INVALID_REQUEST, "Duplicate topic name."))
        else:
            single.append(DeleteTopicState(name, NO_ID))
    for id, times in ids.items():
        if times > 1:
            refusals.append(_result(None, id, ErrorCode.INVALID_REQUEST, "Duplicate topic id."))
        else:
            single.append(DeleteTopicState(None, id))
    return refusals, single


def _result(name: str | None, id: bytes, error: int, message: str | None) -> DeletableTopicResult:
    return DeletableTopicResult(name, id, error, None if message is None else short(message))


def refuse(request: DeleteTopicsRequest, version: int, error: int) -> Response:
    message = ErrorCode(error).message
    return DeleteTopicsResponse(responses=[_result(one.name, one.topic_id, error, message) for one in requested_topics(request, version)])
