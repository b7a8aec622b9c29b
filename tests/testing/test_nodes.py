"""Three nodes under test control: what can be done to a node, what is asked of them as one cluster, and what they refuse."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from broker.control import table
from cli.control.nodes import NODE_VERBS, REFUSED
from tenure.testing import Broker, Cluster, ControlError, NotReached
from tests.running import wait_until
from tests.support.controlled import code_under_test
from tests.testing.groups import Static
from tests.testing.project import Project

pytestmark = pytest.mark.once


@pytest.fixture(scope="module")
def nodes() -> Iterator[Broker]:
    with code_under_test():
        started = Broker(nodes=3, topics={"orders": 6})
    yield started
    started.close()


def member_at_coordinator(kafka: Broker, group: str, instance: str) -> Static:
    """A member that is connected to its coordinator, which the group has only once it exists: so it tries each node."""
    for node in kafka.nodes():
        member = Static(cast(Cluster, SimpleNamespace(bootstrap=node["address"])), group, instance)
        if member.join() == 0:
            return member
        member.close()
    raise AssertionError("no node coordinates the group")


def test_they_are_one_cluster(nodes: Broker) -> None:
    assert nodes.bootstrap == ",".join(node["address"] for node in nodes.nodes())
    assert len({node["pid"] for node in nodes.nodes()}) == 3
    nodes.write("orders", *(str(number) for number in range(12)))
    assert sorted(int(record["value"]) for record in nodes.records("orders")) == list(range(12))
    with nodes.namespace("names") as names:
        topic = names.topic("more", 2)
        assert nodes.topics() == {"orders": 6, topic: 2}
    assert nodes.topics() == {"orders": 6}
    assert {nodes.leader("orders", partition) for partition in range(6)} <= {1, 2, 3}


def test_a_killed_coordinator_costs_no_rebalance(nodes: Broker) -> None:
    member = member_at_coordinator(nodes, "billing", "billing-1")
    assert member.commit("orders", 3) == 0
    assert nodes.wait_committed("billing", "orders", offset=3) == 3
    group = nodes.group("billing")
    before = nodes.nodes()[group.coordinator - 1]
    with nodes.no_rebalance("billing"):
        nodes.kill(node=before["node"])
        assert nodes.wait_group("billing", stable=True, members=1)["members"][0]["instance"] == "billing-1"
    after = nodes.nodes()[before["node"] - 1]
    assert (after["address"], after["serving"]) == (before["address"], True)
    assert after["pid"] != before["pid"]
    assert group.committed("orders") == 3
    assert len(group.rebalances) == 1
    group.member(instance="billing-1").remove()
    assert nodes.wait_group("billing", state="Empty")["members"] == []
    group.delete()
    assert nodes.groups() == []
    member.close()


def test_a_node_is_away_as_long_as_it_is_told(nodes: Broker) -> None:
    begin = time.monotonic()
    nodes.restart("stop", node=1, away=0.5)
    assert time.monotonic() - begin > 0.5


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="the state of a process is read from /proc")
def test_a_frozen_node_keeps_its_process(nodes: Broker) -> None:
    (process,) = [node["pid"] for node in nodes.nodes() if node["node"] == 2]
    nodes.pause(2, node=2)
    wait_until(lambda: state_of(process) == "T", 20)
    wait_until(lambda: state_of(process) != "T", 20)
    assert process in [node["pid"] for node in nodes.nodes()]


def state_of(process: int) -> str:
    return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]


def test_a_drained_node_leads_nothing(nodes: Broker) -> None:
    nodes.drain(3)
    # The node that answers learns of each move a little later than the nodes that made it.
    wait_until(lambda: 3 not in {nodes.leader("orders", partition) for partition in range(6)}, 20)
    assert not nodes.drain(3, undo=True)["draining"]


@pytest.mark.parametrize("call", REFUSED)
def test_what_stands_between_clients_and_broker_is_refused_with_the_remedy(nodes: Broker, call: str) -> None:
    (verb,) = [verb for verb in table.VERBS if f"{verb.method} {verb.path}" == call]
    path = verb.path.replace("{cluster}", "default").replace("{id}", "1")
    with pytest.raises(ControlError, match="several nodes do not have this") as refused:
        nodes.control.call(verb.method, path, None if verb.method != "POST" else verb.example or ({"ms": 1} if any(field.name == "ms" for field in verb.fields) else {}))
    assert (refused.value.status, bool(refused.value.hint)) == (409, True)


def test_each_refusal_is_of_a_verb(nodes: Broker) -> None:
    assert set(REFUSED) <= {f"{verb.method} {verb.path}" for verb in table.VERBS}
    assert not set(REFUSED) & {f"{verb.method} {verb.path}" for verb in NODE_VERBS}
    with pytest.raises(ControlError, match="no node 4"):
        nodes.kill(node=4)
    with pytest.raises(ControlError, match="no request is seen"):
        nodes.wait_request(api="Fetch", timeout=0.1)
    with pytest.raises(NotReached, match="there is no such group"):
        nodes.wait_group("nobody", stable=True, timeout=0.1)


def test_the_fixture(project: Project) -> None:
    project.write('''
@pytest.mark.kafka(topics={"orders": 3})
def test_it(kafka_nodes):
    kafka_nodes.write("orders", "a")
    kafka_nodes.kill(node=kafka_nodes.leader("orders"))
    assert [record["value"] for record in kafka_nodes.records("orders")] == ["a"]
''')
    done = project.run()
    assert "1 passed" in done.text, done.text


def test_a_thread_has_one_node() -> None:
    with pytest.raises(ValueError, match="processes of their own"):
        Broker(in_process=True, nodes=3)
