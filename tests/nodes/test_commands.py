"""`tenure cluster`, `tenure node` and `tenure health` with three nodes."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from cli.failure import Exit
from tests.cli.conftest import Tenure, bootstrap, tenure, with_bootstrap
from tests.nodes.cluster import Nodes
from tests.support.restartable import create_topic

__all__ = ["bootstrap", "tenure"]  # fixtures
pytestmark = pytest.mark.once

OFFSETS_PARTITIONS, PARTITIONS = 50, 12


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    nodes = Nodes(tmp_path_factory.mktemp("nodes") / "data", 3)
    nodes.start()
    create_topic(nodes.port(3), "orders", PARTITIONS)
    nodes.await_settled()
    yield nodes
    nodes.close()


@pytest.fixture
def ask(nodes: Nodes, tenure: Tenure) -> Tenure:
    return with_bootstrap(f"127.0.0.1:{nodes.port(1)}", tenure)


def test_the_cluster_shows_what_each_node_owns(ask: Tenure, nodes: Nodes) -> None:
    value = json.loads(ask("cluster", "--json").out)
    assert [(broker["id"], broker["port"]) for broker in value["brokers"]] == [(id, nodes.port(id)) for id in nodes.ids]
    shares = [broker["node"] for broker in value["brokers"]]
    assert sum(share["groups_partitions"] for share in shares) == OFFSETS_PARTITIONS
    assert sum(share["topics_partitions"] for share in shares) == PARTITIONS
    assert all(share["started"][:18] <= share["since"] and not share["draining"] for share in shares)
    lines = ask("cluster").out.splitlines()
    header = next(number for number, line in enumerate(lines) if line.startswith("BROKER"))
    assert lines[header].split() == ["BROKER", "HOST", "PORT", "RACK", "STATE", "GROUPS", "TOPICS", "SINCE"]
    rows = [line.split() for line in lines[header + 1 : header + 4]]
    assert [row[5:7] for row in rows] == [[str(share["groups_partitions"]), str(share["topics_partitions"])] for share in shares]
    assert all(row[7][:18] == share["since"][:18] for row, share in zip(rows, shares, strict=True))


def test_every_node_names_the_controller(tenure: Tenure, nodes: Nodes) -> None:
    for id in nodes.ids:
        value = json.loads(tenure("cluster", "--json", "--bootstrap", f"127.0.0.1:{nodes.port(id)}").out)
        assert [broker["id"] for broker in value["brokers"] if broker["controller"]] == [nodes.controller()] == [value["controller_id"]]


def test_a_node_is_drained_and_gets_its_share_again(ask: Tenure, nodes: Nodes) -> None:
    before = nodes.status(2)
    assert ask("node", "drain", "2") == (Exit.DONE, "node 2 owns nothing and can be stopped\n", "")
    assert nodes.status(2)["status.groups.partitions"] == nodes.status(2)["status.topics.partitions"] == "0"
    assert nodes.controller() != 2
    assert [line.split()[4] for line in ask("cluster").out.splitlines() if "127.0.0.1" in line][1] == "draining"
    result = json.loads(ask("node", "undrain", "2", "--json").out)
    assert (result["node"], result["draining"], result["dry_run"]) == (2, False, False)
    assert result["groups_partitions"] == int(before["status.groups.partitions"])
    nodes.await_settled()


def test_a_dry_run_moves_nothing(ask: Tenure, nodes: Nodes) -> None:
    before = nodes.status(3)
    owned = f"{before['status.groups.partitions']} partitions of groups and {before['status.topics.partitions']} of topics"
    line = f"node 3 would give up its share of the logs; now it owns {owned}"
    assert ask("node", "drain", "3", "--dry-run").out.startswith(line)
    assert nodes.status(3)["status.node"] == "serving"


def test_the_last_node_is_not_drained(ask: Tenure, nodes: Nodes) -> None:
    assert [ask("node", "drain", str(id)).code for id in (1, 2)] == [Exit.DONE, Exit.DONE]
    result = ask("node", "drain", "3")
    assert (result.code, result.err) == (Exit.REFUSED, "tenure: node 3 is the only node that is not drained: no node would own the logs\n")
    assert [ask("node", "undrain", str(id)).code for id in (1, 2)] == [Exit.DONE, Exit.DONE]
    nodes.await_settled()


def test_a_missing_node_cannot_be_drained(ask: Tenure) -> None:
    assert ask("node", "drain", "7") == (Exit.MISSING, "", "tenure: there is no node 7 at the moment; there is 1, 2, 3\n")


def test_a_single_broker_cannot_be_drained(tenure: Tenure, bootstrap: str) -> None:
    result = with_bootstrap(bootstrap, tenure)("node", "drain", "1")
    assert (result.code, result.err) == (Exit.UNSUPPORTED, "tenure: broker 1 is not one of several nodes of Tenure (tenure serve --nodes N)\n")


def test_every_node_is_ready(tenure: Tenure, nodes: Nodes) -> None:
    result = tenure("health", "--bootstrap", nodes.bootstrap)
    assert (result.code, result.out.splitlines()) == (0, [f"127.0.0.1:{nodes.port(id)} is ready" for id in nodes.ids])


def test_all_configured_nodes_are_asked_for_their_health(tenure: Tenure, nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENURE_LISTENERS", f"PLAINTEXT://127.0.0.1:{nodes.port(1)}")
    monkeypatch.setenv("TENURE_CLUSTER_NODES", "3")
    result = tenure("health")
    assert (result.code, result.out.splitlines()) == (0, [f"127.0.0.1:{nodes.port(id)} is ready" for id in nodes.ids])
