"""The pytest plugin: fixtures, the marker `kafka`, the check that faults have fired, and the section *tenure* of a failed test's report.

Nothing is imported or started before a test asks for a fixture.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tenure.testing import AsyncCluster, Cluster, Control, Process

MARKER = "kafka(topics={}, settings={}): what the cluster of the fixture `kafka` has"
CONTROL = "TENURE_CONTROL"
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


@pytest.fixture(scope="session")
def tenure(request: pytest.FixtureRequest) -> Iterator[Server]:
    """The process with all clusters; one for each worker of pytest-xdist."""
    testing = library()
    url = request.config.getoption("--tenure") or os.environ.get(CONTROL)
    if url:
        try:
            yield Server(testing.Control.of(url), None)
        except ValueError as error:
            pytest.exit(f"--tenure: {error}", 4)
        return
    try:
        process = testing.Process()
    except testing.NoBroker as error:
        pytest.exit(f"pytest-tenure: {error}", 4)
    server = Server(process.control, process)
    try:
        yield server
    finally:
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


@pytest.fixture(scope="module")
def kafka_module(request: pytest.FixtureRequest, tenure: Server) -> Iterator[Cluster]:
    """A cluster for the tests of a module."""
    yield from cluster_of(request, tenure, {})


@pytest.fixture(scope="session")
def kafka_session(request: pytest.FixtureRequest, tenure: Server) -> Iterator[Cluster]:
    """A cluster for all tests of the session."""
    yield from cluster_of(request, tenure, {})


@pytest.fixture
def kafka_names(request: pytest.FixtureRequest, kafka_session: Cluster) -> Iterator[Callable[[str], str]]:
    """Names in the session's cluster that no other test has: names("orders"). What has such a name is deleted after the test."""
    prefix = f"{request.node.name[:60]}-{os.getpid()}-{id(request):x}-"
    safe = "".join(character if character.isalnum() or character in "._-" else "-" for character in prefix)
    yield lambda name: f"{safe}{name}"
    kafka_session.purge(safe)


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
    if left and request.config.getoption("--tenure-strict"):
        raise AssertionError("connections are still open: " + ", ".join(f"{each['client_id'] or each['peer']} ({each['requests']} requests)" for each in left))


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


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    """Tell in the report of a failed test what happened in its clusters."""
    report: pytest.TestReport = yield
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


__all__ = ["kafka", "kafka_async", "kafka_module", "kafka_names", "kafka_session", "tenure", "tenure_factory"]
