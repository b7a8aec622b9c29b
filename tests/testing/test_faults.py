"""Every API with every action, through a real socket: the reply is one that another codec reads, and only what was selected is affected."""

from __future__ import annotations

import time
from typing import Any

import pytest

from broker.faults.shapes import error_codes, paths, shape_of
from protocol.apis import APIS
from protocol.errors import ErrorCode
from protocol.messages.api_versions import ApiVersionsRequest
from tenure.testing import Cluster, ControlError, FaultNotFired, NotReached
from tests.broker.faults.samples import NAMES, request_of
from tests.protocol.foreign import cases, kio_class, kio_read
from tests.running import Client
from tests.support.controlled import port_of

CODE = ErrorCode.CLUSTER_AUTHORIZATION_FAILED  # no broker without security answers it by itself
KIO = set(cases())
# Parked until others come, or closed by their meaning; or an answer takes long.
SERVED = [(key, version) for key, api in sorted(APIS.items()) for version in sorted({api.served[0], api.served[1]}) if key not in (24, 25, 26, 28, 68, 69)]
IDS = [f"{APIS[key].name}-{version}" for key, version in SERVED]


def sample(kafka: Cluster, key: int, version: int, topic_ids: dict[str, bytes] | None = None) -> Any:
    request = request_of(APIS[key], version, topic_ids)
    for name, value in (("timeout_ms", 1000), ("max_wait_ms", 10), ("acks", 1), ("replica_id", -1), ("session_epoch", -1), ("key", "alpha"), ("isolation_level", 0)):
        if hasattr(request, name):
            setattr(request, name, value)
    if key in (11, 14):  # they would wait for members
        if key == 11:
            request.session_timeout_ms = 10_000
        request.member_id = "unknown"
    return APIS[key].request.decode(request.encode(version), 0, version)[0]


def read(frame: bytes, key: int, version: int) -> Any:
    """The reply as we read it; another codec must read it too."""
    from tests.support.headers import response_header_version

    api = APIS[key]
    at = 4 + response_header_version(key, version)
    reply, end = api.response.decode(frame, at, version)
    assert end == len(frame)
    if (f"{api.name}Response", version) in KIO:
        cls = kio_class(f"{api.name}Response", version)
        _, end = kio_read(cls, frame[at:])
        assert end == len(frame) - at
    return reply


def errors_in(part: Any) -> set[int]:
    from protocol.message import Part, field_names

    found: set[int] = set()
    for name in field_names(type(part)):
        value = getattr(part, name)
        if name.endswith("error_code"):
            found.add(int(value))
        elif isinstance(value, list):
            for entry in value:
                if isinstance(entry, Part):
                    found |= errors_in(entry)
    return found


def ask(client: Client, request: Any, version: int) -> Any:
    client.send(request, version)
    return read(client.frame(), request.API_KEY, version)


@pytest.mark.parametrize(("key", "version"), SERVED, ids=IDS)
def test_each_action(kafka: Cluster, key: int, version: int) -> None:
    api = APIS[key]
    request = sample(kafka, key, version)
    for name in NAMES:
        kafka.topic(name, 2)
    with Client(port_of(kafka), client_id="faulty") as client:
        usual = errors_in(ask(client, request, version))
        assert CODE not in usual
        for apply in ("never", "before"):
            with kafka.fault(api=api.name, error=CODE.name, apply=apply):
                reply = ask(client, sample(kafka, key, version), version)
                assert CODE in errors_in(reply) or not has_error(reply), reply
        with kafka.fault(api=api.name, delay_ms=30):
            begin = time.monotonic()
            ask(client, sample(kafka, key, version), version)
            assert time.monotonic() - begin >= 0.03
        with kafka.fault(api=api.name, hold=True, apply="before") as held:
            client.send(sample(kafka, key, version), version)
            held.wait()
            deadline = time.monotonic() + 10
            while not held.release():
                assert time.monotonic() < deadline
            read(client.frame(), key, version)
        with kafka.fault(api=api.name, observe=True) as counted:
            ask(client, sample(kafka, key, version), version)
            assert counted.hits == 1
        if hasattr(reply, "throttle_time_ms") and key != 18:
            with kafka.fault(api=api.name, throttle_ms=20):
                throttled = ask(client, sample(kafka, key, version), version)
                assert throttled.throttle_time_ms in (20, 0)  # 0: this version does not say it
        assert errors_in(ask(client, ApiVersionsRequest("test", "1"), 3)) == {0}
        with kafka.fault(api=api.name, drop=True):
            client.send(sample(kafka, key, version), version)
            assert client.await_close()
    with Client(port_of(kafka), client_id="lost") as lost, kafka.fault(api=api.name, blackhole=True) as hole:
        lost.send(sample(kafka, key, version), version)
        hole.wait()
        lost.send(ApiVersionsRequest("test", "1"), 3)
        lost.socket.settimeout(0.05)
        with pytest.raises(TimeoutError):
            lost.frame()


def has_error(part: Any) -> bool:
    """Whether this version of the reply has a place for an error."""
    return bool(errors_in(part))


SEVERAL = [(key, version) for key, version in SERVED if shape_of(key, version) is not None]


@pytest.mark.parametrize(("key", "version"), SEVERAL, ids=[f"{APIS[key].name}-{version}" for key, version in SEVERAL])
@pytest.mark.parametrize("apply", ["never", "before"])
def test_only_what_is_selected_gets_the_error(kafka: Cluster, key: int, version: int, apply: str) -> None:
    api = APIS[key]
    shape = shape_of(key, version)
    assert shape is not None
    for name in NAMES:
        kafka.topic(name, 2)
    request = sample(kafka, key, version, topic_ids(kafka))
    every = {path.keys for path in paths(shape, request)}
    selector = {"group": "alpha", "topic": "alpha", "resource": "alpha", "member": "alpha"}[shape.kind.value]
    with kafka.fault({shape.kind.value: selector}, api=api.name, error=CODE.name, apply=apply), Client(port_of(kafka), client_id="faulty") as client:
        reply = ask(client, request, version)
    codes = dict(error_codes(shape, reply))
    first = {keys for keys in every if keys[0] in ("alpha", topic_ids(kafka).get("alpha"))}
    assert first
    if not getattr(reply, "error_code", 0):  # of the rest of the request: there is no such group
        assert {keys[0] for keys in every - first} <= {keys[0] for keys in codes}, "what was not selected is answered too"
    for keys, code in codes.items():
        selected = any(keys == each[: len(keys)] for each in first)
        assert (code == CODE) == selected, (keys, code, reply)


def topic_ids(kafka: Cluster) -> dict[str, bytes]:
    from protocol.messages.metadata import MetadataRequest

    with Client(port_of(kafka), client_id="tenure") as client:
        reply = client.ask(MetadataRequest(None), 12)
    return {topic.name: topic.topic_id for topic in reply.topics}





def test_a_fault_that_never_fired_fails_and_says_what_came_near(kafka: Cluster) -> None:
    with pytest.raises(FaultNotFired, match=r"the nearest was ApiVersions of client 'other': its client id is 'other'"), kafka.fault(api="ApiVersions", client_id="one", drop=True), Client(port_of(kafka), client_id="other") as client:
        client.ask(ApiVersionsRequest("test", "1"), 3)
    with kafka.fault(api="Fetch", drop=True, may_not_fire=True):
        pass


def test_waiting_for_a_fault_ends_with_the_state_that_was_reached(kafka: Cluster) -> None:
    fault = kafka.fault(api="Fetch", drop=True)
    with pytest.raises(NotReached, match="0 times and not 2") as waited:
        fault.wait(2, timeout=0.05)
    assert waited.value.state["hits"] == 0


def test_a_fault_that_cannot_be_is_refused_when_it_is_installed(kafka: Cluster) -> None:
    for fault, words in (({"api": "EndTxn", "error": 7}, "does not serve"), ({"api": "SaslHandshake", "error": 7}, "no API"), ({"error": "NOPE"}, "no error")):
        with pytest.raises(ControlError, match=words):
            kafka.fault(fault)


@pytest.mark.parametrize("version", [9, 10])
def test_an_offset_fetch_gets_the_error_for_one_topic_by_its_name_or_id(kafka: Cluster, version: int) -> None:
    for name in NAMES:
        kafka.topic(name, 2)
    ids = topic_ids(kafka)
    with kafka.fault(api="OffsetFetch", topic="beta", error=CODE.name), Client(port_of(kafka)) as client:
        reply = ask(client, sample(kafka, 9, version, ids), version)
    found = {(group.group_id, topic.name or topic.topic_id): {part.error_code for part in topic.partitions} for group in reply.groups for topic in group.topics}
    assert found == {(group, ids[name] if version >= 10 else name): {CODE if name == "beta" else 0} for group in NAMES for name in NAMES}
