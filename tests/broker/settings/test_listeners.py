from __future__ import annotations

import pytest

from broker.settings.config import Notice
from broker.settings.listeners import Listener
from broker.settings.load import ConfigError, load_config


def listeners(*settings: str, **sources: object) -> tuple[Listener, ...]:
    return load_config(settings=settings, **sources).listeners  # type: ignore[arg-type]


def problems(*settings: str, **sources: object) -> list[str]:
    with pytest.raises(ConfigError) as refused:
        load_config(settings=settings, **sources)  # type: ignore[arg-type]
    return refused.value.problems


def test_by_default_only_this_machine_is_listened_on() -> None:
    assert listeners() == (Listener("PLAINTEXT", "127.0.0.1", 9092, "127.0.0.1", 9092),)


def test_each_listener_has_its_advertised_address() -> None:
    assert listeners(
        "listeners=internal://10.0.0.5:9092, EXTERNAL://[::]:9094,LOCAL://localhost:9095",
        "advertised.listeners=INTERNAL://broker.internal:9092,external://kafka.example.com:443",
    ) == (
        Listener("INTERNAL", "10.0.0.5", 9092, "broker.internal", 9092),
        Listener("EXTERNAL", "::", 9094, "kafka.example.com", 443),
        Listener("LOCAL", "localhost", 9095, "localhost", 9095),
    )


def test_the_flags_name_the_plaintext_listener() -> None:
    assert listeners(listen=["[::1]:9000"], advertise=["kafka.example:19000"]) == (
        Listener("PLAINTEXT", "::1", 9000, "kafka.example", 19000),
    )


def test_the_flags_also_take_named_listeners() -> None:
    assert listeners(listen=["A://127.0.0.1:1,B://127.0.0.1:2"], advertise=["B://b:3"]) == (
        Listener("A", "127.0.0.1", 1, "127.0.0.1", 1),
        Listener("B", "127.0.0.1", 2, "b", 3),
    )


def test_advertise_alone_names_the_only_listener_of_any_name() -> None:
    assert listeners("listeners=OUTSIDE://:9092", advertise=["kafka.example:19092"]) == (
        Listener("OUTSIDE", "", 9092, "kafka.example", 19092),
    )


def test_advertise_alone_cannot_mean_two_listeners() -> None:
    assert problems("listeners=A://127.0.0.1:1,B://127.0.0.1:2", advertise=["h:1"]) == [
        "--advertise h:1: which of the listeners A, B does h:1 belong to? Write NAME://HOST:PORT"
    ]


def test_listener_settings_need_the_full_form_as_in_kafka() -> None:
    assert problems("listeners=127.0.0.1:9092") == [
        "listeners=127.0.0.1:9092 (--set): '127.0.0.1:9092' is not of the form NAME://HOST:PORT"
    ]


def test_port_0_advertises_the_port_that_is_found() -> None:
    assert listeners(listen=["127.0.0.1:0"])[0].advertised_port == 0
    assert listeners(listen=["127.0.0.1:0"], advertise=["h:0"])[0].advertised_port == 0
    assert listeners(listen=["127.0.0.1:9"], advertise=["h:0"])[0].advertised_port == 9


@pytest.mark.parametrize("host", ["", "0.0.0.0", "[::]", "[0:0:0:0:0:0:0:0]"])
def test_a_wildcard_without_advertised_listener_is_refused_with_the_line_to_add(host: str) -> None:
    (problem,) = problems(listen=[f"{host}:9092"])
    assert "add --advertise HOST:9092," in problem
    assert listeners(listen=[f"{host}:9092"], advertise=["h:1"])[0].advertised_host == "h"


def test_the_suggested_line_keeps_existing_advertised_listeners() -> None:
    (problem,) = problems("listeners=A://:1,B://0.0.0.0:2,C://localhost:3", "advertised.listeners=A://a.example:11")
    assert "add --advertise A://a.example:11,B://HOST:2,C://localhost:3," in problem


def test_the_suggested_line_is_an_environment_variable_if_the_environment_is_used() -> None:
    (problem,) = problems(environ={"TENURE_LISTENERS": "PLAINTEXT://:9092"})
    assert "add TENURE_ADVERTISED_LISTENERS=PLAINTEXT://HOST:9092," in problem


@pytest.mark.parametrize("host", ["0.0.0.0", "[::]", ""])
def test_a_wildcard_is_never_advertised(host: str) -> None:
    (problem,) = problems("listeners=A://127.0.0.1:1", f"advertised.listeners=A://{host}:1")
    assert "clients cannot connect to a wildcard" in problem


def test_duplicate_listener_names_and_ports_are_refused() -> None:
    assert problems("listeners=A://127.0.0.1:1,a://127.0.0.1:2") == [
        "listeners=A://127.0.0.1:1,a://127.0.0.1:2 (--set): the listener name A is used twice"
    ]
    (problem,) = problems("listeners=A://127.0.0.1:1,B://127.0.0.2:1")
    assert problem.endswith("port 1 is used by A and B")


def test_an_ipv4_and_an_ipv6_address_may_share_a_port_and_port_0_is_shared_freely() -> None:
    assert len(listeners("listeners=A://127.0.0.1:1,B://[::1]:1,C://127.0.0.1:0,D://localhost:0")) == 4


def test_an_advertised_name_must_be_a_listener() -> None:
    assert problems("advertised.listeners=OTHER://h:1") == [
        "advertised.listeners=OTHER://h:1 (--set): OTHER is not among the listeners (PLAINTEXT)"
    ]


@pytest.mark.parametrize("protocol", ["SSL", "SASL_PLAINTEXT", "SASL_SSL"])
def test_a_listener_with_a_security_protocol_is_refused(protocol: str) -> None:
    (problem,) = problems(f"listeners={protocol}://127.0.0.1:9093")
    assert f"needs {protocol}, which is not supported" in problem
    (problem,) = problems("listeners=A://127.0.0.1:9093", f"listener.security.protocol.map=a:{protocol.lower()}")
    assert f"listener A needs {protocol}" in problem


def test_a_map_may_name_protocols_that_no_listener_uses_but_must_name_every_listener() -> None:
    kafka_default = "PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL"
    assert listeners(f"listener.security.protocol.map={kafka_default}")
    (problem,) = problems("listener.security.protocol.map=OTHER:PLAINTEXT")
    assert problem.endswith("it has no protocol for listener PLAINTEXT")
    (problem,) = problems("listener.security.protocol.map=PLAINTEXT:PLAINTEXT,X:TLS")
    assert "'X:TLS' is not NAME:PROTOCOL with one of PLAINTEXT, SSL" in problem


def test_without_a_map_any_name_is_plaintext() -> None:
    assert [listener.name for listener in listeners("listeners=INSIDE://127.0.0.1:1,OUT_2://127.0.0.1:2")] == ["INSIDE", "OUT_2"]


def test_kafkas_controller_listeners_are_not_opened() -> None:
    config = load_config(
        settings=[
            "listeners=PLAINTEXT://localhost:9092,CONTROLLER://:9093",
            "advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
            "controller.listener.names=controller",
        ]
    )
    assert [listener.name for listener in config.listeners] == ["PLAINTEXT"]
    assert Notice("listener of a controller is not opened", {"listener": "CONTROLLER://:9093"}, "debug") in config.notices
    assert problems("controller.listener.names=PLAINTEXT")[0].endswith("there is nothing to listen on")


def test_a_listener_beyond_loopback_is_warned_about() -> None:
    assert not load_config(listen=["localhost:1"]).notices
    (notice,) = load_config(listen=["A://127.0.0.1:1,B://10.0.0.1:2"]).notices
    assert notice.event == "listeners can be reached from other machines: every client that reaches the port may do everything"
    assert notice.fields == {"listeners": "B://10.0.0.1:2"}


def test_a_wrong_address_does_not_hide_other_problems() -> None:
    problem_lines = problems("listeners=A://nowhere,B://127.0.0.1:99999,C", "advertised.listeners=A://[::1:1")
    assert len(problem_lines) == 4
    assert all(part in " ".join(problem_lines) for part in ("port is missing", "0 to 65535", "'C' is not of the form", "[ADDRESS]:PORT"))


def test_an_empty_listener_list_is_refused() -> None:
    assert problems("listeners=") == ["listeners= (--set): there is nothing to listen on"]
