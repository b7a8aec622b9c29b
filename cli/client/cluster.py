"""Requests to the broker that serves them: any broker, one broker, the controller, a group's coordinator, a partition's leader.

Within its time limits a call reconnects, tries other addresses and retries. It fails at once if a retry is useless: if no broker has ever
answered and every address has failed, or if the broker does not support the request.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from cli.arguments import TIMEOUT_DEFAULT, Address, bootstrap_of
from cli.client.connection import Connection, NoReply, api_name
from cli.client.pool import Pool
from cli.client.replies import MOVED_CONTROLLER, MOVED_COORDINATOR, first_error
from cli.client.routes import REPEATABLE, Route
from cli.client.shapes import Broker, PartitionInfo, TopicInfo
from cli.client.words import check, failure
from cli.failure import Exit, Failure
from protocol.message import Message
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

PAUSE_SECONDS = 0.1
PAUSE_SECONDS_MAX = 1.0
CLOCK_SECONDS = 0.01  # a wait that ends this much before its deadline counts as expired
NO_LEADER_YET = (3, 5, 100)  # error codes: no leader, or a new topic that the broker does not know yet
NO_CREATION_VERSION = 4  # of Metadata: the oldest that can list a topic without creating it
CHECK_FIRST = "check whether it was done before trying again"


class Limits(NamedTuple):
    """The time limits of a call, in seconds: of all its attempts together, and of each one."""

    call: float
    attempt: float


class Unanswered(Failure):
    """A request that may have taken effect was sent and not answered. `problem`: the same failure without the advice to check."""

    def __init__(self, problem: Failure) -> None:
        super().__init__(problem.exit_code, f"{problem.line}; it may have taken effect: check before trying again", hint=CHECK_FIRST)
        self.problem = problem


class Cluster:
    """A client of one cluster. Not thread-safe: each thread needs a client of its own (`separate_client`)."""

    def __init__(self, bootstrap: Sequence[Address], timeout: float | None = None) -> None:
        timeout = TIMEOUT_DEFAULT if timeout is None else timeout
        self.limits = Limits(timeout, timeout)  # of calls without a timeout of their own
        self._current = self.limits  # of the call that runs
        self._pool = Pool(bootstrap)
        self._retries = True  # False while `by_coordinator` runs, which retries by itself
        self._id: str | None = None
        self._brokers: dict[int, Broker] = {}
        self._controller_id = -1
        self._metadata_valid = False
        self._coordinators: dict[str, int] = {}
        self._topics: dict[str, TopicInfo] = {}

    @classmethod
    def of(cls, options: argparse.Namespace) -> Cluster:
        try:
            return cls(bootstrap_of(options), options.timeout)
        except ValueError as error:
            raise Failure(Exit.USAGE, str(error)) from error

    def separate_client(self) -> Cluster:
        """A client of the same cluster with connections of its own, for another thread."""
        return Cluster(list(dict.fromkeys([*self._pool.bootstrap, *self._addresses()])), self.timeout)

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

    def version(self, api_key: int, broker_id: int | None = None) -> int:
        """The newest version of an API that client and broker have in common; -1: none."""
        from protocol.apis import APIS

        return self._connect(broker_id).version(api_key, APIS[api_key].served) if api_key in APIS else -1

    def served_apis(self, broker_id: int | None = None) -> dict[int, tuple[int, int]]:
        """The APIs that a broker serves: key, oldest and newest version."""
        return self._connect(broker_id).versions

    def _connect(self, broker_id: int | None) -> Connection:
        find = self._any_broker if broker_id is None else (lambda deadline: self._broker(broker_id, deadline))
        connection: Connection = self._retry(Route(find), lambda connection: connection, self._deadline(None), "ApiVersions", True)
        return connection

    def apis_at_advertised_address(self, broker_id: int, *, timeout: float | None = None) -> dict[int, tuple[int, int]]:
        """The APIs that a broker serves, requested at its advertised address. Raises Failure if this client cannot reach that address."""
        deadline = self._deadline(timeout)
        self._load_metadata(deadline)
        broker = self._brokers[broker_id]
        try:
            return self._pool.connect((broker.host, broker.port), deadline).versions
        except NoReply as no_reply:
            raise Failure(Exit.UNREACHABLE, no_reply.full_text) from no_reply

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

    def coordinators(self, group_ids: Iterable[str], *, timeout: float | None = None) -> dict[int, list[str]]:
        """The groups of each coordinator, by broker id."""
        deadline = self._deadline(timeout)
        wanted = list(dict.fromkeys(group_ids))
        unknown = [name for name in wanted if name not in self._coordinators]
        if len(unknown) > 1 and self.version(FindCoordinatorRequest.API_KEY) >= 4:
            reply = self._call(Route(self._any_broker), FindCoordinatorRequest(coordinator_keys=unknown), 4, deadline)
            for coordinator in reply.coordinators:
                if not coordinator.error_code:
                    self._coordinators[coordinator.key] = coordinator.node_id
                elif coordinator.error_code not in MOVED_COORDINATOR:
                    check(coordinator.error_code, f"group {coordinator.key}", coordinator.error_message)
        by_broker: dict[int, list[str]] = {}
        for name in wanted:
            by_broker.setdefault(self._coordinator_id(name, deadline), []).append(name)
        return by_broker

    def by_coordinator(self, group_ids: Iterable[str], request_groups: Callable[[int, list[str]], dict[str, Any]]) -> dict[str, Any]:
        """Run `request_groups` for the groups of each coordinator. If a coordinator is lost, wait until other brokers have taken over its groups."""
        deadline = self._deadline(None)
        pause = PAUSE_SECONDS
        results: dict[str, Any] = {}
        pending = list(dict.fromkeys(group_ids))
        while True:
            problem: Failure | None = None
            for broker_id, names in self.coordinators(pending).items():
                self._retries = False
                try:
                    results |= request_groups(broker_id, names)
                except Failure as failure:
                    if failure.exit_code != Exit.UNREACHABLE:
                        raise
                    problem = failure
                    for name in names:
                        self.forget_coordinator(name)
                finally:
                    self._retries = True
            pending = [name for name in pending if name not in results]
            if problem is None:
                return results
            if time.monotonic() + pause >= deadline:
                raise problem
            time.sleep(pause)
            pause = min(pause * 2, PAUSE_SECONDS_MAX)

    def forget_coordinator(self, group_id: str) -> None:
        self._coordinators.pop(group_id, None)

    def leader(self, topic: str, partition: int, *, timeout: float | None = None) -> int:
        """The id of the partition's leader; waits while there is none."""
        deadline = self._deadline(timeout)
        about = f"topic {topic} partition {partition}"
        pause = PAUSE_SECONDS
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
            if time.monotonic() + pause >= deadline:
                raise failure(error, about)
            time.sleep(pause)
            pause = min(pause * 2, PAUSE_SECONDS_MAX)
            refresh = True

    def ask_all_brokers(
        self, request: Message, *, oldest: int = 0, timeout: float | None = None, missing: dict[int, Failure] | None = None
    ) -> dict[int, Any]:
        """Ask every broker. A broker that does not answer raises Failure, or is added to `missing` if given."""
        deadline = self._deadline(timeout)
        self._load_metadata(deadline)
        replies: dict[int, Any] = {}
        for number, broker_id in enumerate(sorted(self._brokers)):
            share = max(0.0, deadline - time.monotonic()) / (len(self._brokers) - number)
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
            raise Failure(Exit.UNREACHABLE, no_reply.line) from no_reply

    def own_connection(self, broker_id: int, *, timeout: float | None = None) -> Connection:
        """A new connection for the caller alone. Raises `NoReply`."""
        deadline = self._deadline(timeout)
        shared = self._broker(broker_id, deadline)
        return Connection(shared.host, shared.port, self._deadline_of_attempt(deadline))

    # Attempts and retries

    def _deadline(self, timeout: float | None) -> float:
        self._current = self.limits if timeout is None else Limits(timeout, timeout)
        return time.monotonic() + self._current.call

    def _deadline_of_attempt(self, deadline: float) -> float:
        """The deadline for one attempt that begins now."""
        return min(deadline, time.monotonic() + self._current.attempt)

    def _call(self, route: Route, request: Message, oldest: int, deadline: float) -> Any:
        def send(connection: Connection) -> Any:
            version = connection.version_for(request, oldest)
            return connection.send_and_receive(request, version, self._deadline_of_shared_attempt(route, deadline))

        repeatable = request.API_KEY in REPEATABLE  # type: ignore[attr-defined]
        return self._retry(route, send, deadline, api_name(request), repeatable)

    def _retry(self, route: Route, send: Callable[[Connection], Any], deadline: float, description: str, repeatable: bool) -> Any:
        """Retry until a final reply or error arrives, or the deadline passes."""
        pause = PAUSE_SECONDS
        problem: Failure | None = None
        while True:
            connection = None
            try:
                connection = route.find(deadline)
                reply = send(connection)
                problem = route.retriable_problem(reply)
                if problem is None:
                    return reply
            except NoReply as no_reply:
                if problem and self._expired(deadline):  # raise the earlier error, which explains more than a timeout
                    raise problem from no_reply
                line = f"{no_reply.line} within {self._current.attempt:.3g} s" if no_reply.late else no_reply.line
                problem = Failure(Exit.UNREACHABLE, line)
                if connection is not None:
                    self._pool.mark_failed(connection)
                    if no_reply.sent and not repeatable:
                        raise Unanswered(problem) from no_reply
                if no_reply.final or not self._pool.has_connected:
                    raise problem from no_reply
                self._metadata_valid = False
            except Failure as failure:  # of the request by which `route` looks up the broker
                raise (problem if problem and self._expired(deadline) else failure) from failure
            except TimeoutError as error:
                raise problem or Failure(Exit.UNREACHABLE, f"{description} was not answered within {self._current.call:.3g} s") from error
            route.forget()
            if not route.retry or not self._retries or time.monotonic() + pause >= deadline:
                raise problem
            time.sleep(pause)
            pause = min(pause * 2, PAUSE_SECONDS_MAX)

    @staticmethod
    def _expired(deadline: float) -> bool:
        return time.monotonic() >= deadline - CLOCK_SECONDS

    def _deadline_of_shared_attempt(self, route: Route, deadline: float) -> float:
        """The deadline for one attempt. If any of several brokers may answer, each gets a share of the time."""
        candidates = len(self._pool.candidates(self._addresses())) if route.find == self._any_broker else 1
        now = time.monotonic()
        return now + (self._deadline_of_attempt(deadline) - now) / candidates

    def _addresses(self) -> list[Address]:
        """The addresses of the brokers in the metadata, if there are several. A single broker is used at the address at which it answered."""
        return [(broker.host, broker.port) for broker in self._brokers.values()] if len(self._brokers) > 1 else []

    def _any_broker(self, deadline: float) -> Connection:
        return self._pool.any_connection(self._addresses(), self._deadline_of_attempt(deadline))

    def _broker(self, broker_id: int, deadline: float) -> Connection:
        self._load_metadata(deadline)
        if len(self._brokers) == 1 and broker_id in self._brokers:
            return self._any_broker(deadline)  # a single broker: use the address that answered, not the advertised one
        broker = self._brokers.get(broker_id)
        if broker is None:
            self._metadata_valid = False
            raise NoReply(f"broker {broker_id} is not in the cluster at the moment")
        try:
            return self._pool.connect((broker.host, broker.port), self._deadline_of_attempt(deadline))
        except NoReply as no_reply:
            no_reply.line = f"broker {broker_id} cannot be reached at its advertised address: {no_reply.line}"
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


def no_brokers(reply: MetadataResponse) -> Failure | None:
    return None if reply.brokers else Failure(Exit.AGAIN, "the cluster has no brokers yet")


def topic_info(topic: Any) -> TopicInfo:
    partitions = {
        entry.partition_index: PartitionInfo(entry.leader_id, entry.leader_epoch, entry.replica_nodes, entry.isr_nodes, entry.error_code)
        for entry in sorted(topic.partitions, key=lambda entry: entry.partition_index)
    }
    return TopicInfo(topic.topic_id if any(topic.topic_id) else None, topic.is_internal, topic.error_code, partitions)
