"""InitProducerId: producer ids stay unique, whatever happens to the broker or its registry of topics."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.security.authorizer import CLUSTER_NAME, Operation, ResourceType
from broker.topics.registry import PRODUCER_IDS_PER_BLOCK
from protocol.errors import ErrorCode
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.init_producer_id import InitProducerIdRequest
from tests.running import Client, broker
from tests.support.controlled import Controlled, port_of
from tests.support.group_harness import refusing
from tests.support.produce_harness import ProduceClient, ProduceHarness

NOT_YET = (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, -1, -1)
REQUEST = InitProducerIdRequest(None, 60_000)


@pytest.fixture
def harness() -> ProduceHarness:
    return ProduceHarness({"t": (1, {})})


def producer_ids(caller: ProduceClient, version: int = 5) -> list[tuple[int, int, int]]:
    """Error, id and epoch of the replies since the last call."""
    replies = [caller.read(REQUEST, version, frame) for frame in caller.replies()]
    return [(reply.error_code, reply.producer_id, reply.producer_epoch) for reply in replies]


def ask(caller: ProduceClient, request: InitProducerIdRequest = REQUEST, version: int = 5) -> None:
    caller.send(caller.frame(request, version))


def end_turn(*callers: ProduceClient) -> None:
    for caller in callers:
        caller.connection.end_turn()


def test_only_the_first_producer_id_of_a_block_waits_for_the_log(harness: ProduceHarness) -> None:
    caller = harness.caller()
    ask(caller)
    assert producer_ids(caller) == []
    harness.registry.release_replies()
    end_turn(caller)
    assert producer_ids(caller) == [(0, 0, 0)]
    for number in range(1, PRODUCER_IDS_PER_BLOCK):
        ask(caller)
        assert producer_ids(caller) == [(0, number, 0)]
    assert harness.topics.next_producer_id == PRODUCER_IDS_PER_BLOCK
    ask(caller)
    assert producer_ids(caller) == []
    harness.registry.release_replies()
    end_turn(caller)
    assert producer_ids(caller) == [(0, PRODUCER_IDS_PER_BLOCK, 0)]


def test_requests_that_wait_for_one_block_get_different_ids(harness: ProduceHarness) -> None:
    callers = [harness.caller() for _ in range(PRODUCER_IDS_PER_BLOCK + 5)]
    for caller in callers:
        ask(caller)
    assert len(harness.registry.held) == 1
    harness.registry.release_replies()  # requests past the block wait for the next block
    assert len(harness.registry.held) == 1
    harness.registry.release_replies()
    end_turn(*callers)
    assert [producer_ids(caller) for caller in callers] == [[(0, number, 0)] for number in range(len(callers))]


def test_a_connection_closed_while_waiting_loses_one_producer_id(harness: ProduceHarness) -> None:
    leaving, staying = harness.caller(), harness.caller()
    ask(leaving)
    ask(staying)
    leaving.connection.connection_lost(None)
    harness.registry.release_replies()
    end_turn(staying)
    assert producer_ids(staying) == [(0, 1, 0)]


def test_no_producer_id_is_assigned_from_a_block_of_unknown_durability(harness: ProduceHarness) -> None:
    first, second = harness.caller(), harness.caller()
    ask(first)
    ask(second)
    harness.registry.fail_replies()
    end_turn(first, second)
    assert (producer_ids(first), producer_ids(second)) == ([NOT_YET], [NOT_YET])
    ask(first)
    harness.registry.release_replies()
    end_turn(first)
    assert producer_ids(first) == [(0, PRODUCER_IDS_PER_BLOCK, 0)]


def test_init_producer_id_is_retriable_while_the_registry_is_suspended(harness: ProduceHarness) -> None:
    caller = harness.caller()
    harness.registry.writable = False
    ask(caller)
    assert producer_ids(caller) == [NOT_YET]
    harness.registry.writable = True
    ask(caller)
    harness.registry.release_replies()
    end_turn(caller)
    assert producer_ids(caller) == [(0, 0, 0)]
    harness.registry.writable = False
    ask(caller)
    assert producer_ids(caller) == [(0, 1, 0)]


def test_a_producer_that_sends_its_id_gets_a_new_one(harness: ProduceHarness) -> None:
    caller = harness.caller()
    ask(caller)
    harness.registry.release_replies()
    end_turn(caller)
    ask(caller, InitProducerIdRequest(None, 60_000, 0, 5), 3)
    assert [*producer_ids(caller), *producer_ids(caller, 3)] == [(0, 0, 0), (0, 1, 0)]


def test_without_any_right_to_write_no_producer_id_is_assigned() -> None:
    idempotent = (Operation.IDEMPOTENT_WRITE, ResourceType.CLUSTER, CLUSTER_NAME)
    for refused, error in (
        ([idempotent], 0),  # the right to write to some topic is enough
        ([idempotent, (Operation.WRITE, ResourceType.TOPIC, None)], ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
        ([(Operation.WRITE, ResourceType.TOPIC, None)], 0),
    ):
        harness = ProduceHarness({"t": (1, {})}, refusing(*refused))
        caller = harness.caller()
        ask(caller)
        harness.registry.release_replies()
        end_turn(caller)
        assert producer_ids(caller)[0][0] == error


@pytest.mark.once  # starts processes
def test_producer_ids_stay_unique_over_kills_and_stops(tmp_path: Path) -> None:
    ids: list[int] = []
    for stop in (False, True, False):
        with broker("--data", str(tmp_path / "data"), "--set", "listeners=PLAINTEXT://127.0.0.1:0") as started:
            with Client(started.port) as client:
                for _ in range(3):
                    reply = client.ask(REQUEST, 4)
                    assert (reply.error_code, reply.producer_epoch) == (0, 0)
                    ids.append(reply.producer_id)
            if stop:
                assert started.stop() == 0
            else:
                started.kill()
    assert len(set(ids)) == len(ids) == 9


@pytest.mark.once
def test_the_refusal_of_a_transaction_coordinator_is_logged(controlled: Controlled) -> None:
    kafka = controlled()
    with Client(port_of(kafka)) as client:
        for _ in range(2):
            reply = client.ask(FindCoordinatorRequest("transfer", 1), 3)
            assert (reply.error_code, reply.error_message) == (53, "transactions are not served by this broker")
            client.ask(InitProducerIdRequest("transfer", 60_000), 4)
    assert sum("transfer" in str(line) for line in kafka.log_lines()) == 1
