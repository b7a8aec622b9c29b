"""The manifests of docker/kubernetes are valid for Kubernetes, and say the same as the image and each other."""

from __future__ import annotations

import copy
import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fastjsonschema
import pytest
import yaml

from broker.settings.load import load_config
from cli.command_line import parse
from tests.docker.files import FOLDER, Dockerfile
from tests.running import ROOT

MANIFESTS = FOLDER / "kubernetes"
SPEC = json.loads((ROOT / "tests" / "docker" / "kubernetes_spec.json").read_text())


def read(name: str) -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load((MANIFESTS / name).read_text())
    return document


KUSTOMIZATION = read("kustomization.yaml")
DOCUMENTS = {document["kind"]: document for document in map(read, KUSTOMIZATION["resources"])}
DOCKERFILE = Dockerfile(FOLDER / "Dockerfile")


@pytest.fixture
def pod() -> dict[str, Any]:
    spec: dict[str, Any] = DOCUMENTS["StatefulSet"]["spec"]["template"]["spec"]
    return spec


@pytest.fixture
def container(pod: dict[str, Any]) -> dict[str, Any]:
    (only,) = pod["containers"]
    described: dict[str, Any] = only
    return described


@pytest.fixture(scope="module")
def valid() -> Callable[[dict[str, Any]], object]:
    kinds = {kind: {"$ref": f"#/definitions/{name}", "definitions": SPEC["definitions"]} for kind, name in SPEC["kinds"].items()}
    compiled: dict[str, Callable[[dict[str, Any]], object]] = {kind: fastjsonschema.compile(schema) for kind, schema in kinds.items()}
    return lambda document: compiled[document["kind"]](document)


def test_the_kustomization_names_every_manifest() -> None:
    assert {*KUSTOMIZATION["resources"], "kustomization.yaml"} == {path.name for path in MANIFESTS.iterdir()}
    assert DOCUMENTS.keys() == SPEC["kinds"].keys()


@pytest.mark.parametrize("kind", DOCUMENTS)
def test_a_manifest_is_valid(kind: str, valid: Callable[[dict[str, Any]], object]) -> None:
    valid(DOCUMENTS[kind])


def with_defect(defect: str) -> dict[str, Any]:
    document = copy.deepcopy(DOCUMENTS["NetworkPolicy" if defect == "a peer" else "StatefulSet"])
    if defect == "a peer":
        document["spec"]["ingress"][0]["from"][0]["podSelecter"] = {}
        return document
    spec = document["spec"]
    (container,) = spec["template"]["spec"]["containers"]
    match defect:
        case "a probe":
            container["readinesProbe"] = container.pop("readinessProbe")
        case "a period":
            container["livenessProbe"]["periodSeconds"] = "10s"
        case "a variable":
            container["env"].append({"value": "without a name"})
        case "a selector":
            del spec["selector"]
    return document


@pytest.mark.parametrize("defect", ["a probe", "a period", "a variable", "a selector", "a peer"])
def test_the_schema_refuses_a_wrong(defect: str, valid: Callable[[dict[str, Any]], object]) -> None:
    with pytest.raises(fastjsonschema.JsonSchemaValueException):
        valid(with_defect(defect))


def test_service_and_policy_select_the_pods_of_the_set(container: dict[str, Any]) -> None:
    labels = DOCUMENTS["StatefulSet"]["spec"]["template"]["metadata"]["labels"]
    assert DOCUMENTS["StatefulSet"]["spec"]["selector"]["matchLabels"] == labels
    assert DOCUMENTS["Service"]["spec"]["selector"] == labels
    assert DOCUMENTS["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"] == labels
    (port,) = container["ports"]
    (served,) = DOCUMENTS["Service"]["spec"]["ports"]
    (allowed,) = DOCUMENTS["NetworkPolicy"]["spec"]["ingress"][0]["ports"]
    assert served["targetPort"] == allowed["port"] == container["livenessProbe"]["tcpSocket"]["port"] == port["name"]
    assert str(port["containerPort"]) == DOCKERFILE.last("EXPOSE")


def test_the_broker_advertises_the_service(container: dict[str, Any]) -> None:
    (service,) = [document["metadata"]["name"] for document in DOCUMENTS.values() if document["kind"] == "Service"]
    variables = {variable["name"]: variable.get("value", "here") for variable in container["env"]}
    advertised = variables["TENURE_ADVERTISED_LISTENERS"].replace("$(NAMESPACE)", variables["NAMESPACE"])
    assert advertised == f"PLAINTEXT://{service}.here.svc:{DOCUMENTS['Service']['spec']['ports'][0]['port']}"
    settings = {**DOCKERFILE.environment(), "TENURE_ADVERTISED_LISTENERS": advertised}
    load_config(environ=settings)


def test_probes_run_the_command_of_the_images_own_health_check(container: dict[str, Any]) -> None:
    program, *words = DOCKERFILE.words("HEALTHCHECK")
    for probe in ("startupProbe", "readinessProbe"):
        assert container[probe]["exec"]["command"] == [Path(program).name, *words]
    options = parse(words)
    assert options is not None
    assert options.command == "health"


def test_the_pod_runs_as_the_images_user_without_rights_and_writes_to_its_volume_only(pod: dict[str, Any], container: dict[str, Any]) -> None:
    user, group = map(int, DOCKERFILE.last("USER").split(":"))
    security = pod["securityContext"]
    assert (security["runAsUser"], security["runAsGroup"], security["fsGroup"], security["runAsNonRoot"]) == (user, group, group, True)
    assert container["securityContext"] == {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}
    (mounted,) = container["volumeMounts"]
    assert mounted["mountPath"] == DOCKERFILE.last("VOLUME") == DOCKERFILE.environment()["TENURE_LOG_DIRS"]
    assert mounted["name"] in {claim["metadata"]["name"] for claim in DOCUMENTS["StatefulSet"]["spec"]["volumeClaimTemplates"]}


def test_the_kustomization_names_the_image_of_the_set(container: dict[str, Any]) -> None:
    assert container["image"] in {image["name"] for image in KUSTOMIZATION["images"]}


@pytest.mark.once
def test_kubectl_builds_the_kustomization() -> None:
    if shutil.which("kubectl") is None:
        pytest.skip("needs kubectl, which reads the kustomization of docker/kubernetes without a cluster")
    done = subprocess.run(["kubectl", "kustomize", str(MANIFESTS)], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    built = {document["kind"]: document for document in yaml.safe_load_all(done.stdout)}
    (image,) = KUSTOMIZATION["images"]
    assert built["StatefulSet"]["spec"]["template"]["spec"]["containers"][0]["image"] == f"{image['newName']}:{image['newTag']}"
    assert built.keys() == DOCUMENTS.keys()
