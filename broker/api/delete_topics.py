"""DeleteTopics: delete topics by name or id."""

from __future__ import annotations

from broker.api.parts import BrokerParts
from broker.api.refused import Refused, shorten
from broker.api.topic_checks import REGISTRY_SUSPENDED
from broker.net.dispatch import Call, Response, Route
from broker.net.long_requests import LOOKUP_COST
from broker.security.authorizer import Operation, cluster_allowed, topic_allowed
from broker.topics.registry import NO_ID, Topic
from protocol.errors import ErrorCode
from protocol.messages.delete_topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from protocol.wire import Steps

TOPIC_IDS_FROM = 6


def route(parts: BrokerParts) -> Route:
    return Route(DeleteTopicsRequest, parts.long_requests.handler(DeleteTopics(parts).handle), error_response)


class DeleteTopics:
    def __init__(self, parts: BrokerParts) -> None:
        self._topics = parts.topics
        self._registry = parts.registry_journal
        self._deletions = parts.deletions
        self._authorizer = parts.authorizer

    def handle(self, call: Call, request: DeleteTopicsRequest) -> Steps[Response | None]:
        targets = requested_topics(request, call.version)
        if request.timeout_ms <= 0:
            return DeleteTopicsResponse(responses=[_result(target.name, target.topic_id, ErrorCode.REQUEST_TIMED_OUT, None) for target in targets])
        results, single = yield from without_duplicates(targets)
        may_delete_all = cluster_allowed(self._authorizer, call, Operation.DELETE)
        to_delete: dict[str, DeletableTopicResult] = {}
        for target in single:
            yield LOOKUP_COST
            result = DeletableTopicResult(target.name, target.topic_id, ErrorCode.NONE, None)
            try:
                topic = self._find(call, target, result, may_delete_all)
                result.name, result.topic_id = topic.name, topic.id
                if topic.name in to_delete:  # named twice, by name and by id
                    to_delete[topic.name].error_code = ErrorCode.INVALID_REQUEST
                    to_delete[topic.name].error_message = "The provided topic name maps to an ID that was already supplied."
                    continue
                to_delete[topic.name] = result
            except Refused as refused:
                result.error_code, result.error_message = refused.error, refused.message
            results.append(result)
        for name in [name for name, result in to_delete.items() if result.error_code or not self._check_deletable(name, result)]:
            del to_delete[name]
        call.reply = DeleteTopicsResponse(responses=results)
        if not to_delete:
            self._registry.hold_reply(call)
            return None

        def done(error: int) -> None:
            for result in to_delete.values():
                if error:
                    result.error_code, result.error_message = error, ErrorCode(error).message
            call.release()

        self._deletions.delete(to_delete, done)
        return None

    def _find(self, call: Call, target: DeleteTopicState, result: DeletableTopicResult, may_delete_all: bool) -> Topic:
        """Find the topic if the caller may delete it; the topic's name is shown only to callers that may describe the topic."""
        authorizer = self._authorizer
        if target.name is None:
            topic = self._topics.by_id.get(target.topic_id)
            if topic is None:
                raise _refused(ErrorCode.UNKNOWN_TOPIC_ID)
            name = topic.name
        else:
            name = target.name
            topic = self._topics.by_name.get(name)
        if topic is None and (may_delete_all or topic_allowed(authorizer, call, Operation.DESCRIBE, name)):
            raise _refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if topic is None or not (may_delete_all or topic_allowed(authorizer, call, Operation.DELETE, name)):
            if target.name is None and topic_allowed(authorizer, call, Operation.DESCRIBE, name):
                result.name = name
            raise _refused(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        return topic

    def _check_deletable(self, name: str, result: DeletableTopicResult) -> bool:
        if self._topics.by_name[name].internal:
            result.error_code = ErrorCode.INVALID_TOPIC_EXCEPTION
            result.error_message = f"'{name}' stores groups and cannot be deleted."
        elif not self._registry.writable:
            result.error_code, result.error_message = ErrorCode.KAFKA_STORAGE_ERROR, REGISTRY_SUSPENDED
        return not result.error_code


def _refused(error: ErrorCode) -> Refused:
    return Refused(error, error.message)


def requested_topics(request: DeleteTopicsRequest, version: int) -> list[DeleteTopicState]:
    if version >= TOPIC_IDS_FROM:
        return request.topics
    return [DeleteTopicState(name, NO_ID) for name in request.topic_names]


def without_duplicates(targets: list[DeleteTopicState]) -> Steps[tuple[list[DeletableTopicResult], list[DeleteTopicState]]]:
    """Split the request into refusals of invalid or repeated topics, and valid topics."""
    refusals: list[DeletableTopicResult] = []
    names: dict[str, int] = {}
    ids: dict[bytes, int] = {}
    for target in targets:
        yield LOOKUP_COST
        if target.name is not None and target.topic_id != NO_ID:
            message = "You may not specify both topic name and topic id."
        elif target.name is not None:
            names[target.name] = names.get(target.name, 0) + 1
            continue
        elif target.topic_id != NO_ID:
            ids[target.topic_id] = ids.get(target.topic_id, 0) + 1
            continue
        else:
            message = "Neither topic name nor id were specified."
        refusals.append(_result(target.name, target.topic_id, ErrorCode.INVALID_REQUEST, message))
    single: list[DeleteTopicState] = []
    for name, times in names.items():
        yield LOOKUP_COST
        if times > 1:
            refusals.append(_result(name, NO_ID, ErrorCode.INVALID_REQUEST, "Duplicate topic name."))
        else:
            single.append(DeleteTopicState(name, NO_ID))
    for id, times in ids.items():
        yield LOOKUP_COST
        if times > 1:
            refusals.append(_result(None, id, ErrorCode.INVALID_REQUEST, "Duplicate topic id."))
        else:
            single.append(DeleteTopicState(None, id))
    return refusals, single


def _result(name: str | None, id: bytes, error: int, message: str | None) -> DeletableTopicResult:
    return DeletableTopicResult(name, id, error, None if message is None else shorten(message))


def error_response(request: DeleteTopicsRequest, version: int, error: int) -> Response:
    message = ErrorCode(error).message
    return DeleteTopicsResponse(responses=[_result(target.name, target.topic_id, error, message) for target in requested_topics(request, version)])
