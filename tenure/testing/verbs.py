"""Every verb of the control as a method, and the faults that are installed."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .clients import Clients
from .control import SECONDS, Control, path_of
from .fault_files import read_faults

WAIT_SECONDS = 10.0


class FaultNotFired(AssertionError):
    """A fault never fired, so the test has not tested it. The text says what came nearest."""


class InstalledFault:
    """A fault that is installed; as a context manager it must fire within the block."""

    def __init__(self, cluster: Verbs, report: dict[str, Any]) -> None:
        self._cluster = cluster
        self.id: int = report["id"]
        self.last_report = report

    @property
    def report(self) -> dict[str, Any]:
        """What the broker knows of it now: hits, left, when, nearest misses."""
        self.last_report = self._cluster.control.get(self._path())
        return self.last_report

    @property
    def hits(self) -> int:
        return int(self.report["hits"])

    def _path(self, *parts: str) -> str:
        return path_of(self._cluster.id, "faults", str(self.id), *parts)

    def wait(self, hits: int = 1, timeout: float = WAIT_SECONDS) -> dict[str, Any]:
        """Wait until it has fired so often."""
        return dict(self._cluster.control.post(self._path("wait"), {"hits": hits, "timeout_ms": round(timeout * 1000)}, seconds=timeout + SECONDS))

    def release(self) -> int:
        """Let go the requests that it holds; returns their number."""
        return int(self._cluster.control.post(self._path("release"))["released"])

    def remove(self) -> dict[str, Any]:
        self._cluster.faults_installed.pop(self.id, None)
        self.last_report = self._cluster.control.delete(self._path())
        return self.last_report

    def __enter__(self) -> InstalledFault:
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        report = self.remove()
        if kind is None:
            raise_if_never_fired(report)


def raise_if_never_fired(report: Mapping[str, Any]) -> None:
    if not report["hits"] and not report["fault"].get("may_not_fire"):
        raise FaultNotFired(report.get("story") or f"fault {report['id']} never fired")


class Faults:
    """The faults of a cluster together."""

    def __init__(self, cluster: Verbs) -> None:
        self._cluster = cluster

    def load(self, source: str | os.PathLike[str] | Sequence[Mapping[str, Any]]) -> list[InstalledFault]:
        """Install all faults of a file (JSON, or YAML), or none: a list of faults, or one."""
        documents = read_faults(Path(source)) if isinstance(source, str | os.PathLike) else list(source)
        reports = self._cluster.control.post(path_of(self._cluster.id, "faults"), documents)["faults"]
        installed = [InstalledFault(self._cluster, report) for report in reports]
        self._cluster.faults_installed |= {fault.id: fault for fault in installed}
        return installed

    def list(self) -> list[dict[str, Any]]:
        """The reports of all: hits, left, when, nearest misses."""
        return list(self._cluster.control.get(path_of(self._cluster.id, "faults"))["faults"])


class Verbs:
    """A cluster of its own: port, topics, groups, settings, clock and faults."""

    def __init__(self, control: Control, document: Mapping[str, Any]) -> None:
        self.control = control
        self.id: str = document["id"]
        self.bootstrap: str = document["bootstrap"]
        self.clients = Clients(self.bootstrap)
        self.faults_installed: dict[int, InstalledFault] = {}
        self.begin_mark = 0  # histories are read from here on
        self.groups_named: set[str] = set()

    def _post(self, *parts: str, wait: float = 0.0, **fields: Any) -> Any:
        given = {name: value for name, value in fields.items() if value is not None}
        return self.control.post(path_of(self.id, *parts), given, seconds=wait + SECONDS)

    def _get(self, *parts: str, **query: Any) -> Any:
        return self.control.get(path_of(self.id, *parts), **query)

    def close(self) -> list[dict[str, Any]]:
        """End the cluster; returns the connections that were still open."""
        return list(self.control.delete(path_of(self.id))["open_connections"])

    def reset(self, *, topics: Mapping[str, Any] | None = None) -> None:
        """Topics, groups, faults and clock as new, on the same port."""
        self._post("reset", topics=dict(topics or {}))
        self.faults_installed.clear()

    # Faults.

    def fault(self, document: Mapping[str, Any] | None = None, /, **selectors: Any) -> InstalledFault:
        """Install a fault: kafka.fault(api="OffsetCommit", group="billing", error="REQUEST_TIMED_OUT", apply="before")."""
        report = self.control.post(path_of(self.id, "faults"), {**(document or {}), **selectors})
        installed = self.faults_installed[report["id"]] = InstalledFault(self, report)
        return installed

    @property
    def faults(self) -> Faults:
        return Faults(self)

    def end_faults(self) -> list[dict[str, Any]]:
        """Remove all faults; returns their reports."""
        self.faults_installed.clear()
        return list(self.control.delete(path_of(self.id, "faults"))["faults"])

    # The broker.

    def restart(self, how: str = "stop", *, away: float = 0.0, node: int | None = None) -> None:
        """Restart on the same port, in order or as killed; `away`: seconds in which connections are refused. `node`: which one of several."""
        self._post("broker", "restart", wait=away, how=how, away_ms=round(away * 1000), node=node)

    def kill(self, *, away: float = 0.0, node: int | None = None) -> None:
        """Kill it and start it again: what was acknowledged is there."""
        self.restart("kill", away=away, node=node)

    def pause(self, seconds: float, *, node: int | None = None) -> None:
        """Accept connections, and read and answer nothing for so long, as a frozen process."""
        self._post("broker", "pause", ms=round(seconds * 1000), node=node)

    def nodes(self) -> list[dict[str, Any]]:
        """The nodes of a cluster of several: node, pid, address, serving."""
        return list(self._get()["nodes"])

    def leader(self, topic: str, partition: int = 0) -> int:
        """The node that leads a partition."""
        return int(self._get("topics", "leaders", topic=topic)["leaders"][str(partition)])

    def drain(self, node: int, *, undo: bool = False) -> dict[str, Any]:
        """Have a node hand its partitions and coordinators over to the others; `undo`: give it its share again."""
        return dict(self._post("broker", "drain", node=node, undo=undo))

    def refuse(self, seconds: float) -> None:
        self._post("broker", "refuse", ms=round(seconds * 1000))

    def advance(self, seconds: float) -> dict[str, Any]:
        """Let time pass for the broker; says what happened."""
        return dict(self._post("time", "advance", wait=60.0, ms=round(seconds * 1000)))

    def time_ms(self) -> int:
        return int(self._get("time")["wall_ms"])

    def limit_versions(self, apis: Mapping[str, Any]) -> None:
        """Serve only these versions, as an older broker: kafka.limit_versions({"OffsetCommit": 7, "DeleteGroups": None}); {} ends it."""
        self._post("versions", apis=dict(apis))

    def versions(self) -> dict[str, list[int]]:
        """The oldest and newest version of each API."""
        return dict(self._get("versions")["versions"])

    def connections(self) -> list[dict[str, Any]]:
        return list(self._get("connections")["connections"])

    def close_connections(self, client_id: str | None = None) -> int:
        return int(self._post("connections", "close", client_id=client_id)["closed"])

    def requests(self, last: int = 50, *, api: str | None = None, client_id: str | None = None) -> list[dict[str, Any]]:
        return list(self._get("requests", last=last, api=api, client_id=client_id)["requests"])

    def log_lines(self) -> list[str]:
        """The broker's last warnings and errors."""
        return list(self._get("log")["lines"])

    # Topics and records.

    def topic(self, name: str, partitions: int = 1, **config: Any) -> str:
        self._post("topics", name=name, partitions=partitions, config=config)
        return name

    def make_topics(self, topics: Mapping[str, Any] | None) -> None:
        """Each with its number of partitions, or {"partitions": 6, "config": {...}}."""
        for name, value in (topics or {}).items():
            if isinstance(value, Mapping):
                self.topic(name, value.get("partitions", 1), **value.get("config", {}))
            else:
                self.topic(name, value)

    def topics(self) -> dict[str, int]:
        return dict(self._get("topics")["topics"])

    def write(self, topic: str, *records: Any) -> None:
        """Write records: texts, or {"key": ..., "value": ..., "partition": ...}."""
        self._post("records", topic=topic, records=[{"value": record} if isinstance(record, str) else record for record in records])

    def records(self, topic: str, partition: int | None = None) -> list[dict[str, Any]]:
        return list(self._get("records", topic=topic, partition=partition)["records"])

    def purge(self, prefix: str) -> dict[str, Any]:
        """Delete all topics and groups whose names begin so."""
        return dict(self._post("purge", prefix=prefix))

    # Groups.

    def groups(self) -> list[str]:
        return [group["group"] for group in self._get("groups")["groups"]]

    def wait_group(
        self,
        name: str,
        *,
        state: str | None = None,
        stable: bool = False,
        members: int | None = None,
        generation: int | None = None,
        assigned: int | None = None,
        timeout: float = WAIT_SECONDS,
    ) -> dict[str, Any]:
        """Wait for the state of a group, its number of members, a generation, or the number of partitions that its members have together."""
        self.groups_named.add(name)
        wanted = {"name": name, "state": "Stable" if stable else state, "members": members, "generation": generation, "assigned": assigned}
        return dict(
            self._post("wait", wait=timeout, group={key: value for key, value in wanted.items() if value is not None}, timeout_ms=round(timeout * 1000)) or {}
        )

    def wait_committed(self, group: str, topic: str, partition: int = 0, *, offset: int = 1, timeout: float = WAIT_SECONDS) -> int:
        """Wait until the group has committed this offset or a later one."""
        wanted = {"group": group, "topic": topic, "partition": partition, "offset": offset}
        return int(self._post("wait", wait=timeout, committed=wanted, timeout_ms=round(timeout * 1000))["offset"])

    def wait_request(self, timeout: float = WAIT_SECONDS, **selectors: Any) -> list[dict[str, Any]]:
        """Wait for a request that these selectors of a fault choose."""
        return list(self._post("wait", wait=timeout, request=selectors, timeout_ms=round(timeout * 1000))["seen"])

    def mark(self) -> int:
        """A moment, from which histories can be read."""
        return int(self._post("mark")["mark"])
