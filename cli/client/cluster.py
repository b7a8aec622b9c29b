"""Requests to the broker that serves them: any broker, one broker, the controller, a group's coordinator, a partition's leader.

Within its time limits a call reconnects, tries other addresses and retries. It fails at once if a retry is useless: if no broker has ever
answered and every address has failed, or if the broker does not support the request. All calls together wait no longer for what does not
come than one call may (`patience`).
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from cli.arguments import TIMEOUT_DEFAULT, Address, bootstrap_of
from cli.client.connection import Connection, NoReply, api_name
from cli.client.effects import READS, Effect, Unanswered, effect_of
from cli.client.patience import Limits, Patience, Wait, seconds_text
from cli.client.pool import Pool
from cli.client.replies import MOVED_CONTROLLER, MOVED_COORDINATOR, MOVED_LEADER, first_error
from cli.client.routes import Route
from cli.client.security import security_of
from cli.client.shapes import Broker, TopicInfo, topic_info
from cli.client.words import check, failure
from cli.failure import Exit, Failure
from protocol.message import Message
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from secured.security import OPEN, Security

SHORT_SECONDS = 1.0  # an attempt of this length leaves no time for another broker to take over
CLOCK_SECONDS = 0.01  # a wait that ends this much before its deadline counts as expired
NOT_NOW = (Exit.UNREACHABLE, Exit.AGAIN)
NO_LEADER_YET = (3, 5, 100)  # error codes: no leader, or a new topic that the broker does not know yet
NO_CREATION_VERSION = 4  # of Metadata: the oldest that can list a topic without creating it


class Cluster:
    """A client of one cluster. Not thread-safe: each thread needs a client of its own (`separate_client`)."""

    def __init__(self, bootstrap: Sequence[Address], timeout: float | None = None, security: Security = OPEN) -> None:
        timeout = TIMEOUT_DEFAULT if timeout is None else timeout
        self.limits = Limits(timeout, timeout)  # of calls without a timeout of their own
        self.patience = Patience(lambda: self.limits.call)
        self._current = self.limits  # of the call that runs
        self._pool = Pool(bootstrap, security)
        self._retries = True  # False while `by_coordinator` runs, which retries by itself
        self._id: str | None = None
        self._brokers: dict[int, Broker] = {}
        self._controller_id = -1
        self._metadata_valid = False
        self._coordinators: dict[str, int] = {}
        self._topics: dict[str, TopicInfo] = {}

    @classmethod
    def of(cls, options: argparse.Namespace) -> Cluster:
        security = security_of(options)
        try:
            return cls(bootstrap_of(options, security.bootstrap), options.timeout, security)
        except ValueError as error:
            raise Failure(Exit.USAGE, str(error)) from error

    def separate_client(self) -> Cluster:
        """A client of the same cluster with connections of its own, for another thread."""
        return Cluster(list(dict.fromkeys([*self._pool.bootstrap, *self._addresses()])), self.timeout, self._pool.security)

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        self._pool.close()

    @property
    def timeout(self) -> float:
        """The limit of each attempt: --timeout."""
        return self.limits.attempt

    def wait(self, share: float = 1.0) -> Wait:
        """For a loop that repeats calls until the cluster is in the wanted state. `share`: of the time that the command still has."""
        return Wait(self.patience, self.patience.left * share)

    # Properties of the cluster

    @property
    def id(self) -> str | None:
        self._load_metadata()
        return self._id

    @property
    def brokers(self) -> dict[int, Broker]:
        self._load_metadata()
        return self._brokers

    @property
    def controller_id(self) -> int:
        self._load_metadata()
        return self._controller_id

    def version(self, api_key: int, broker_id: int | None = None, *, retry: bool = True) -> int:
        """The newest version of an API that client and broker have in common; -1: none. `retry`: retry while the broker is down."""
        from protocol.apis import APIS

        return self._connect(broker_id, retry).version(api_key, APIS[api_key].served) if api_key in APIS else -1

    def served_apis(self, broker_id: int | None = None) -> dict[int, tuple[int, int]]:
        """The APIs that a broker serves: key, oldest and newest version."""
        return self._connect(broker_id).versions

    def _connect(self, broker_id: int | None, retry: bool = True) -> Connection:
        find = self._any_broker if broker_id is None else (lambda deadline: self._broker(broker_id, deadline))
        connection: Connection = self._retry(Route(find, retry=retry), lambda connection: connection, self._deadline(None), "ApiVersions", READS)
        return connection

    def apis_at_advertised_address(self, broker_id: int, *, timeout: float | None = None) -> dict[int, tuple[int, int]]:
        """The APIs that a broker serves, requested at its advertised address. Raises Failure if this client cannot reach that address."""
        deadline = self._deadline(timeout)
        self._load_metadata(deadline)
        broker = self._brokers[broker_id]
        mark = self.patience.mark()
        try:
            if not self.patience.left:
                self._pool.check_reachable((broker.host, broker.port))
            return self._pool.connect((broker.host, broker.port), self._deadline_of_attempt(deadline, (broker.host, broker.port))).versions
        except NoReply as no_reply:
            self.patience.spend(mark)
            raise failure_of(no_reply, self._line_of(no_reply, mark.at)) from no_reply

    # Requests

    def send_to_any(self, request: Message, *, oldest: int = 0, timeout: float | None = None) -> Any:
        """Ask any broker that answers."""
        return self._call(Route(self._any_broker), request, oldest, self._deadline(timeout))

    def send_to_broker(self, broker_id: int, request: Message, *, oldest: int = 0, timeout: float | None = None, retry: bool = True) -> Any:
        """Ask this broker. `retry`: retry while it is down."""
        route = Route(lambda deadline: self._broker(broker_id, deadline), retry=retry)
        return self._call(route, request, oldest, self._deadline(timeout))

    def send_to_controller(self, request: Message, *, oldest: int = 0, timeout: float | None = None) -> Any:
        def moved(reply: Any) -> Failure | None:
            return Failure(Exit.AGAIN, "the controller has moved", kind="not-controller") if first_error(reply, MOVED_CONTROLLER) else None

        return self._call(Route(self._controller, moved, self._forget_metadata), request, oldest, self._deadline(timeout))

    def send_to_coordinator(self, group_id: str, request: Message, *, oldest: int = 0, timeout: float | None = None) -> Any:
        """Ask the group's coordinator; retry while it loads or moves."""

        def not_now(reply: Any) -> Failure | None:
            code = first_error(reply, MOVED_COORDINATOR, group_id)
            return failure(code, f"group {group_id}") if code else None

        def find(deadline: float) -> Connection:
            return self._broker(self._coordinator_id(group_id, deadline), deadline)

        route = Route(find, not_now, lambda: self.forget_coordinator(group_id))
        return self._call(route, request, oldest, self._deadline(timeout))

    def coordinators(self, group_ids: Iterable[str], *, failed: dict[str, Failure] | None = None) -> dict[int, list[str]]:
        """The groups of each coordinator, by broker id. A group without one raises Failure, or is added to `failed` if given."""
        wanted = list(dict.fromkeys(group_ids))
        unknown = [name for name in wanted if name not in self._coordinators]
        if len(unknown) > 1 and self.version(FindCoordinatorRequest.API_KEY) >= 4:
            try:
                reply = self._call(Route(self._any_broker), FindCoordinatorRequest(coordinator_keys=unknown), 4, self._deadline(None))
            except Failure as problem:
                if failed is None:
                    raise
                failed |= dict.fromkeys(unknown, problem)
                wanted = [name for name in wanted if name not in failed]
            else:
                self._coordinators |= {found.key: found.node_id for found in reply.coordinators if not found.error_code}
        by_broker: dict[int, list[str]] = {}
        for name in wanted:
            try:
                by_broker.setdefault(self._coordinator_id(name, self._deadline(None)), []).append(name)
            except Failure as problem:
                if failed is None:
                    raise
                failed[name] = problem
        return by_broker

    def by_coordinator(
        self, group_ids: Iterable[str], request_groups: Callable[[int, list[str]], dict[str, Any]], *, failed: dict[str, Failure] | None = None
    ) -> dict[str, Any]:
        """Run `request_groups` for the groups of each coordinator. If a coordinator is lost, wait until other brokers have taken over its groups.

        `request_groups` returns the result of each group, or its Failure. A failure raises, or is added to `failed` if given.
        """
        wait = self.wait()
        results: dict[str, Any] = {}  # or failures
        pending = list(dict.fromkeys(group_ids))
        while pending:
            lost: dict[str, Failure] = {}
            by_broker = self.coordinators(pending, failed=lost)
            for broker_id in self.answering_first(by_broker):
                results |= self._without_retries(request_groups, broker_id, by_broker[broker_id])
            results |= lost
            problems = {name: problem for name in pending if isinstance(problem := results.get(name), Failure)}
            pending = [name for name, problem in problems.items() if problem.exit_code in NOT_NOW]
            for name in pending:
                self.forget_coordinator(name)
            if (failed is None and len(pending) < len(problems)) or (pending and not (self._pool.has_connected and wait.again())):
                break
        problems = {name: result for name, result in results.items() if isinstance(result, Failure)}
        if failed is not None:
            failed |= problems
        elif problems:
            raise next((problem for problem in problems.values() if problem.exit_code not in NOT_NOW), next(iter(problems.values())))
        return {name: result for name, result in results.items() if name not in problems}

    def least_seconds(self, broker_id: int) -> float:
        """What a broker gets of a time that is shared with others."""
        broker = self._brokers.get(broker_id)
        return self.patience.for_broker(answering=broker is not None and self._pool.is_good((broker.host, broker.port))) if not self.patience.left else 0.0

    def answering_first(self, broker_ids: Iterable[int]) -> list[int]:
        """The brokers in their order, but those whose last attempt failed at the end: they leave no time to the others."""
        brokers = self._brokers

        def failed(id: int) -> bool:
            return id not in brokers or self._pool.has_failed((brokers[id].host, brokers[id].port))

        return sorted(broker_ids, key=lambda id: (failed(id), id))

    def _without_retries(self, request_groups: Callable[[int, list[str]], dict[str, Any]], broker_id: int, names: list[str]) -> dict[str, Any]:
        self._retries = False
        try:
            return request_groups(broker_id, names)
        except Failure as problem:
            if problem.exit_code not in NOT_NOW:
                raise
            return dict.fromkeys(names, problem)
        finally:
            self._retries = True

    def forget_coordinator(self, group_id: str) -> None:
        self._coordinators.pop(group_id, None)

    def leader(self, topic: str, partition: int, *, timeout: float | None = None) -> int:
        """The id of the partition's leader; waits while there is none."""
        return self._leader(topic, partition, self._deadline(timeout))

    def send_to_leader(self, topic: str, partition: int, request: Message, *, oldest: int = 0, timeout: float | None = None) -> Any:
        """Ask the partition's leader; retry while another broker takes it over. The request is about this partition alone."""

        def moved(reply: Any) -> Failure | None:
            code = first_error(reply, MOVED_LEADER)
            return failure(code, f"topic {topic} partition {partition}") if code else None

        def find(deadline: float) -> Connection:
            return self._broker(self._leader(topic, partition, deadline), deadline)

        route = Route(find, moved, lambda: self._topics.pop(topic, None))
        return self._call(route, request, oldest, self._deadline(timeout))

    def _leader(self, topic: str, partition: int, deadline: float) -> int:
        wait = Wait(self.patience, deadline - time.monotonic())
        about = f"topic {topic} partition {partition}"
        refresh = False
        error = 0
        while True:
            try:
                info = self._describe_topics([topic], refresh, deadline)[topic]
            except Failure:
                if error and self._expired(deadline):
                    raise failure(error, about) from None
                raise
            partition_info = info.partitions.get(partition)
            if partition_info is not None and partition_info.leader >= 0:
                return partition_info.leader
            error = info.error or (partition_info.error if partition_info else 3) or 5
            if error not in NO_LEADER_YET or (not info.error and partition_info is None):
                raise failure(error, about)
            if not wait.again():
                raise failure(error, about)
            refresh = True

    def ask_all_brokers(
        self, request: Message, *, oldest: int = 0, timeout: float | None = None, missing: dict[int, Failure] | None = None
    ) -> dict[int, Any]:
        """Ask every broker. A broker that does not answer raises Failure, or is added to `missing` if given."""
        deadline = self._deadline(timeout)
        self._load_metadata(deadline)
        replies: dict[int, Any] = {}
        for number, broker_id in enumerate(self.answering_first(self._brokers)):
            share = max((deadline - time.monotonic()) / (len(self._brokers) - number), self.least_seconds(broker_id))
            try:
                replies[broker_id] = self.send_to_broker(broker_id, request, oldest=oldest, timeout=share, retry=missing is None)
            except Failure as trouble:
                if missing is None or trouble.exit_code != Exit.UNREACHABLE:
                    raise
                missing[broker_id] = trouble
        return replies

    def topics(self, names: Sequence[str] | None, *, refresh: bool = False, timeout: float | None = None) -> dict[str, TopicInfo]:
        """The named topics, or all; none is created. The TopicInfo of an unknown topic has an error."""
        return self._describe_topics(names, refresh, self._deadline(timeout))

    def send_without_reply(self, broker_id: int, request: Message, *, oldest: int = 0, timeout: float | None = None) -> None:
        """Send a request without a reply: Produce with acks=0."""
        deadline = self._deadline(timeout)
        try:
            connection = self._broker(broker_id, deadline)
            connection.send(request, connection.version_for(request, oldest), deadline)
        except NoReply as no_reply:
            raise failure_of(no_reply, no_reply.line) from no_reply

    def own_connection(self, broker_id: int, *, timeout: float | None = None) -> Connection:
        """A new connection for the caller alone. Raises `NoReply`."""
        deadline = self._deadline(timeout)
        shared = self._broker(broker_id, deadline)
        return Connection(shared.host, shared.port, self._deadline_of_attempt(deadline), self._pool.security)

    # Attempts and retries

    def _deadline(self, timeout: float | None) -> float:
        self._current = self.limits if timeout is None else Limits(timeout, timeout)
        return time.monotonic() + min(self._current.call, self.patience.for_broker(answering=self._pool.has_connected))

    def _deadline_of_attempt(self, deadline: float, address: Address | None = None, *, final: bool = False) -> float:
        """The deadline for one attempt that begins now. Where another broker may take over, it leaves time to ask that one, unless it is `final`."""
        now = time.monotonic()
        allowed = self.patience.for_broker(answering=address is None or self._pool.is_good(address))
        seconds = min(deadline - now, self._current.attempt, allowed)
        if not final and len(self._brokers) > 1 and seconds > SHORT_SECONDS:
            seconds = max(seconds / 2, SHORT_SECONDS)
        return now + seconds

    def _call(self, route: Route, request: Message, oldest: int, deadline: float) -> Any:
        effect = effect_of(request)

        def send(connection: Connection) -> Any:
            version = connection.version_for(request, oldest)
            if effect.changes and not self.patience.left:
                self._pool.check_answering(connection)  # else there would be one more change of which nobody knows
            return connection.send_and_receive(request, version, self._deadline_of_reply(route, deadline, effect, connection))

        return self._retry(route, send, deadline, api_name(request), effect)

    def _retry(self, route: Route, send: Callable[[Connection], Any], deadline: float, description: str, effect: Effect) -> Any:
        """Retry until a final reply or error arrives, or the deadline passes."""
        mark = self.patience.mark()
        wait = Wait(self.patience, deadline - mark.at)
        problem: Failure | None = None
        in_doubt = False  # whether an unanswered attempt may have taken effect
        try:
            while True:
                connection = None
                try:
                    connection = route.find(deadline)
                    reply = send(connection)
                    problem = route.retriable_problem(reply)
                    if problem is None:
                        self._pool.mark_answered(connection)
                        return reply
                except NoReply as no_reply:
                    if problem and self._expired(deadline):  # raise the earlier error, which explains more than a timeout
                        raise problem from no_reply
                    problem = failure_of(no_reply, self._line_of(no_reply, mark.at))
                    if connection is not None:
                        self._pool.mark_silent(connection)
                        in_doubt = in_doubt or (no_reply.sent and effect.changes)
                        if no_reply.sent and not effect.repeatable:
                            raise problem from no_reply
                    if no_reply.final or not self._pool.has_connected:
                        raise problem from no_reply
                    self._metadata_valid = False
                except Failure as failure:  # of the request by which `route` looks up the broker
                    raise (problem if problem and self._expired(deadline) else failure) from failure
                except TimeoutError as error:
                    raise problem or Failure(Exit.UNREACHABLE, f"{description} was not answered within {seconds_text(self._current.call)}") from error
                route.forget()
                if not route.retry or not self._retries or not wait.again():
                    raise problem
        except Failure as failure:
            self.patience.spend(mark)
            if in_doubt:
                raise Unanswered(failure) from failure
            raise

    def _line_of(self, no_reply: NoReply, since: float) -> str:
        if not no_reply.late:
            return no_reply.line
        seconds, limit = time.monotonic() - since, self._current.call
        return f"{no_reply.line} within {seconds_text(limit if 0.8 * limit < seconds < 1.5 * limit else seconds)}"

    @staticmethod
    def _expired(deadline: float) -> bool:
        return time.monotonic() >= deadline - CLOCK_SECONDS

    def _deadline_of_reply(self, route: Route, deadline: float, effect: Effect, connection: Connection) -> float:
        """The deadline for the reply to one attempt. If any of several brokers may answer, each gets a share of the time."""
        candidates = self._pool.promising(self._addresses()) if route.find == self._any_broker else 1
        address = (connection.host, connection.port)
        until = self._deadline_of_attempt(deadline, address, final=candidates > 1 or not effect.repeatable)
        now = time.monotonic()
        return now + (until - now) / candidates

    def _addresses(self) -> list[Address]:
        """The addresses of the brokers in the metadata, if there are several. A single broker is used at the address at which it answered."""
        return [(broker.host, broker.port) for broker in self._brokers.values()] if len(self._brokers) > 1 else []

    def _any_broker(self, deadline: float) -> Connection:
        mark = self.patience.mark()
        connection = self._pool.any_connection(self._addresses(), self._deadline_of_attempt(deadline, final=True))
        self.patience.spend(mark)  # on other addresses, which were tried first and do not answer
        return connection

    def _broker(self, broker_id: int, deadline: float) -> Connection:
        self._load_metadata(deadline)
        if len(self._brokers) == 1 and broker_id in self._brokers:
            return self._any_broker(deadline)  # a single broker: use the address that answered, not the advertised one
        broker = self._brokers.get(broker_id)
        if broker is None:
            self._metadata_valid = False
            raise NoReply(f"broker {broker_id} is not in the cluster at the moment")
        address = (broker.host, broker.port)
        if not self.patience.left:
            self._pool.check_reachable(address)
        try:
            return self._pool.connect(address, self._deadline_of_attempt(deadline, address))
        except NoReply as no_reply:
            no_reply.line = f"broker {broker_id} cannot be reached at its advertised address: {no_reply.line}"
            self._pool.mark_unreachable(address, no_reply)
            raise

    def _controller(self, deadline: float) -> Connection:
        self._load_metadata(deadline)
        if self._controller_id < 0:
            self._metadata_valid = False
            raise NoReply("the cluster has no controller at the moment")
        return self._broker(self._controller_id, deadline)

    def _forget_metadata(self) -> None:
        self._metadata_valid = False

    def _coordinator_id(self, group_id: str, deadline: float) -> int:
        if group_id not in self._coordinators:
            about = f"group {group_id}"

            def not_yet(reply: Any) -> Failure | None:
                coordinator = reply.coordinators[0] if reply.coordinators else reply
                return failure(coordinator.error_code, about, coordinator.error_message) if coordinator.error_code in MOVED_COORDINATOR else None

            request = FindCoordinatorRequest(key=group_id, coordinator_keys=[group_id])
            reply = self._call(Route(self._any_broker, not_yet), request, 0, deadline)
            coordinator = reply.coordinators[0] if reply.coordinators else reply
            check(coordinator.error_code, about, coordinator.error_message)
            self._coordinators[group_id] = coordinator.node_id
        return self._coordinators[group_id]

    # Metadata

    def _load_metadata(self, deadline: float | None = None) -> None:
        if not self._metadata_valid:
            deadline = self._deadline(None) if deadline is None else deadline
            self._store_metadata(self._call(Route(self._any_broker, no_brokers), MetadataRequest([], False), 1, deadline))

    def _store_metadata(self, reply: MetadataResponse) -> None:
        self._id = reply.cluster_id
        self._controller_id = reply.controller_id
        self._brokers = {broker.node_id: Broker(broker.node_id, broker.host, broker.port, broker.rack) for broker in reply.brokers}
        self._metadata_valid = True

    def _describe_topics(self, names: Sequence[str] | None, refresh: bool, deadline: float) -> dict[str, TopicInfo]:
        if names is not None and not refresh and all(name in self._topics and not self._topics[name].error for name in names):
            return {name: self._topics[name] for name in names}
        requested = None if names is None else [MetadataRequestTopic(name=name) for name in names]
        oldest = 1 if names is None else NO_CREATION_VERSION
        reply = self._call(Route(self._any_broker, no_brokers), MetadataRequest(requested, False), oldest, deadline)
        self._store_metadata(reply)
        topics = {topic.name: topic_info(topic) for topic in reply.topics if topic.name is not None}
        self._topics |= topics
        return topics if names is None else {name: topics.get(name, TopicInfo(None, False, 3, {})) for name in names}


def failure_of(no_reply: NoReply, line: str) -> Failure:
    return Failure(no_reply.exit_code, line, hint=no_reply.hint)


def no_brokers(reply: MetadataResponse) -> Failure | None:
    return None if reply.brokers else Failure(Exit.AGAIN, "the cluster has no brokers yet")
