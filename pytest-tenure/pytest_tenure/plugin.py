"""The pytest plugin: fixtures, the marker `kafka`, the check that faults have fired, and the section *tenure* of a failed test's report.

Nothing is imported or started before a test asks for a fixture.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tenure.testing import AsyncCluster, Cluster, Control, Namespace, Process

MARKER = "kafka(topics={}, settings={}): what the cluster of the fixture `kafka` has"
CONTROL = "TENURE_CONTROL"
NODES = 3
CLUSTERS = pytest.StashKey["list[Cluster]"]()
FACTORY_SETTINGS = pytest.StashKey["dict[str, Any]"]()


def library() -> Any:
    """`tenure.testing`, from this environment or bundled with the plugin."""
    try:
        from tenure import testing
    except ImportError:
        from pytest_tenure import _testing as testing  # type: ignore[attr-defined, no-redef]
    return testing


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("tenure", "a Kafka for each test")
    group.addoption("--tenure", metavar="URL", help=f"use the broker of this test control, http://TOKEN@HOST:PORT, instead of starting one (also ${CONTROL})")
    group.addoption("--tenure-image", metavar="IMAGE", help="start the broker of this container image, in this machine's network")
    group.addoption("--tenure-version", metavar="VERSION", help="end the run if the broker has another version: 1.2.3, or 1.2 for any of them")
    group.addoption("--tenure-shared", action="store_true", help="one broker for all workers of pytest-xdist, instead of one for each")
    group.addoption("--tenure-log", action="store_true", help="show the broker's log with each failed test")
    group.addoption("--tenure-keep", action="store_true", help="after a failed test print its cluster's address and wait for Enter, to look at it with `tenure group history`")
    group.addoption("--tenure-strict", action="store_true", help="connections that are still open at a test's end are a failure")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", MARKER)


class Server:
    """The broker of a session: started here, or one that runs already."""

    def __init__(self, control: Control, process: Process | None) -> None:
        self.control = control
        self.process = process

    @property
    def log(self) -> list[str]:
        return list(self.process.lines) if self.process is not None else []

    def stop(self) -> None:
        if self.process is not None:
            self.process.stop()


SHARED = pytest.StashKey[Server]()


@pytest.fixture(scope="session")
def tenure(request: pytest.FixtureRequest) -> Iterator[Server]:
    """The process with all clusters; one for each worker of pytest-xdist."""
    server = find_server(request.config)
    try:
        yield server
    finally:
        server.stop()


def find_server(config: pytest.Config) -> Server:
    """The broker that the options name, or a new one; the run ends if there is none."""
    testing = library()
    url = config.getoption("--tenure") or getattr(config, "workerinput", {}).get(CONTROL) or os.environ.get(CONTROL)
    try:
        if url:
            server = Server(testing.Control.of(url), None)
        else:
            image = config.getoption("--tenure-image")
            process = testing.Process(tenure=testing.image_command(image) if image else None)
            server = Server(process.control, process)
    except ValueError as error:
        pytest.exit(f"--tenure: {error}", 4)
    except testing.NoBroker as error:
        pytest.exit(f"pytest-tenure: {error}", 4)
    wanted = config.getoption("--tenure-version")
    if wanted:
        found = server.control.get("/v1")["version"]
        if found != wanted and not found.startswith(f"{wanted}."):
            server.stop()
            pytest.exit(f"--tenure-version {wanted}: the broker has version {found}", 4)
    return server


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """In the controller of pytest-xdist, for each worker: with --tenure-shared the first one starts the broker of all."""
    config: pytest.Config = node.config
    if not config.getoption("--tenure-shared") or config.getoption("--tenure") or os.environ.get(CONTROL):
        return
    server = config.stash.get(SHARED, None)
    if server is None:
        server = config.stash[SHARED] = find_server(config)
    node.workerinput[CONTROL] = server.control.address


def pytest_unconfigure(config: pytest.Config) -> None:
    server = config.stash.get(SHARED, None)
    if server is not None:
        server.stop()


@pytest.fixture
def kafka(request: pytest.FixtureRequest, tenure: Server) -> Iterator[Cluster]:
    """A cluster for this test alone, with the topics and settings of its marker `kafka`."""
    yield from cluster_of(request, tenure, marked(request))


@pytest.fixture
def kafka_async(kafka: Cluster) -> AsyncCluster:
    """The cluster of `kafka`, whose verbs are awaited."""
    made: AsyncCluster = library().AsyncCluster(kafka)
    return made


@pytest.fixture
def kafka_nodes(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """A cluster of three nodes, which are processes of their own, to kill one of them; with the topics and settings of the marker `kafka`."""
    testing = library()
    try:
        broker = testing.Broker(nodes=NODES, **marked(request))
    except testing.NoBroker as error:
        pytest.exit(f"pytest-tenure: {error}", 4)
    request.node.stash.setdefault(CLUSTERS, []).append(broker)
    try:
        yield broker
    finally:
        broker.close()


@pytest.fixture(scope="module")
def kafka_module(request: pytest.FixtureRequest, tenure: Server) -> Iterator[Cluster]:
    """A cluster for the tests of a module."""
    yield from cluster_of(request, tenure, {})


@pytest.fixture(scope="session")
def kafka_session(request: pytest.FixtureRequest, tenure: Server) -> Iterator[Cluster]:
    """A cluster for all tests of the session."""
    yield from cluster_of(request, tenure, {})


@pytest.fixture
def kafka_names(request: pytest.FixtureRequest, kafka_session: Cluster) -> Iterator[Namespace]:
    """Names in the session's cluster that no other test has: names("orders"). What has such a name is deleted after the test."""
    with kafka_session.namespace(request.node.name) as names:
        yield names


@pytest.fixture(scope="session")
def tenure_factory(request: pytest.FixtureRequest, tenure: Server) -> Iterator[Callable[..., Cluster]]:
    """Makes clusters that live as long as the session: tenure_factory(topics={"orders": 6}, **settings)."""
    made: list[Cluster] = []

    def make(*, topics: dict[str, Any] | None = None, **settings: Any) -> Cluster:
        named = {name.replace("_", "."): value for name, value in settings.items()}
        cluster: Cluster = library().Cluster.make(tenure.control, topics=topics, settings=named)
        made.append(cluster)
        return cluster

    yield make
    for cluster in made:
        cluster.close()


def marked(request: pytest.FixtureRequest) -> dict[str, Any]:
    """What the markers `kafka` of a test ask for; the nearest counts."""
    wanted: dict[str, Any] = {"topics": {}, "settings": {}}
    for marker in reversed(list(request.node.iter_markers("kafka"))):
        unknown = set(marker.kwargs) - set(wanted)
        if unknown or marker.args:
            raise pytest.UsageError(f"the marker kafka takes topics= and settings=, not {', '.join(sorted(unknown)) or 'positional arguments'}")
        for name, value in marker.kwargs.items():
            wanted[name] = {**wanted[name], **value}
    return wanted


def cluster_of(request: pytest.FixtureRequest, server: Server, wanted: dict[str, Any]) -> Iterator[Cluster]:
    testing = library()
    try:
        cluster: Cluster = testing.Cluster.make(server.control, **wanted)
    except testing.ControlError as error:
        raise pytest.UsageError(f"kafka: {error}") from error
    request.node.stash.setdefault(CLUSTERS, []).append(cluster)
    try:
        yield cluster
    finally:
        end(request, cluster, testing)


def end(request: pytest.FixtureRequest, cluster: Cluster, testing: Any) -> None:
    """Check what a test left: faults that never fired, open connections; and end its cluster."""
    failed = request.node.stash.get(FAILED, False)
    try:
        if failed and request.config.getoption("--tenure-keep"):
            keep(request, cluster)
        reports = cluster.end_faults()
        left = cluster.close()
    except (testing.ControlError, ConnectionError):
        if failed:
            return
        raise
    if failed:
        return
    silent = [report["story"] for report in reports if not report["hits"] and not report["fault"].get("may_not_fire")]
    if silent:
        raise testing.FaultNotFired("; ".join(silent))
    if left:
        told = open_connections(left)
        if request.config.getoption("--tenure-strict"):
            raise AssertionError(told)
        request.node.stash[LEFT] = told


def open_connections(left: list[dict[str, Any]]) -> str:
    """For example: 3 connections of client billing-1 are still open."""
    counted: dict[str, int] = {}
    for each in left:
        name = each["client_id"] or each["peer"]
        counted[name] = counted.get(name, 0) + 1
    return ", ".join(f"{count} connection{'s' * (count > 1)} of client {name} {'are' if count > 1 else 'is'} still open" for name, count in sorted(counted.items()))


def keep(request: pytest.FixtureRequest, cluster: Cluster) -> None:
    capture = request.config.pluginmanager.getplugin("capturemanager")
    if capture is None:
        return
    with capture.global_and_fixture_disabled():
        print(f"\ntenure: the cluster of {request.node.nodeid} is at {cluster.bootstrap}; look at it with `tenure group list --bootstrap {cluster.bootstrap}`")
        try:
            input("tenure: Enter ends it ")
        except (EOFError, OSError):
            return


FAILED = pytest.StashKey[bool]()
LEFT = pytest.StashKey[str]()  # the connections that a test left open, in words
REPORTED = "tenure_left"  # the same in the report of its teardown, which pytest-xdist carries to the controller


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    """Tell in the report of a failed test what happened in its clusters."""
    report: pytest.TestReport = yield
    left = item.stash.get(LEFT, None) if report.when == "teardown" else None
    if left is not None:
        setattr(report, REPORTED, left)
    if report.failed and report.when == "call":
        item.stash[FAILED] = True
        told = []
        for cluster in item.stash.get(CLUSTERS, []):
            try:
                story = cluster.story()
            except Exception as error:  # the report of the test matters more
                story = f"its story cannot be read: {error}"
            told.append(f"cluster {cluster.id} at {cluster.bootstrap}\n{story}")
        if told:
            report.sections.append(("tenure", "\n\n".join(told)))
        if item.config.getoption("--tenure-log"):
            server = item.funcargs.get("tenure") if hasattr(item, "funcargs") else None
            if server is not None:
                report.sections.append(("tenure's log", "\n".join(server.log)))
    return report


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """List the connections that tests left open: clients that were not closed."""
    lines = [f"{report.nodeid}: {told}" for reports in terminalreporter.stats.values() for report in reports if (told := getattr(report, REPORTED, None))]
    if lines:
        terminalreporter.section("connections that tests left open (--tenure-strict fails these tests)")
        for line in lines:
            terminalreporter.write_line(line)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> None:
    """Histories in a cluster of several tests are read from the begin of each test."""
    for name in ("kafka_module", "kafka_session"):
        cluster = getattr(item, "funcargs", {}).get(name)
        if cluster is not None:
            cluster.begin_mark = cluster.mark()


__all__ = ["kafka", "kafka_async", "kafka_module", "kafka_names", "kafka_nodes", "kafka_session", "tenure", "tenure_factory"]
