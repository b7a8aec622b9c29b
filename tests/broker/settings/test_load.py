from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from broker.settings.config import Difference, Notice
from broker.settings.load import ConfigError, load_config


def problems(**sources: Any) -> list[str]:
    with pytest.raises(ConfigError) as refused:
        load_config(**sources)
    return refused.value.problems


def problem(**sources: Any) -> str:
    (only,) = problems(**sources)
    return only


@pytest.fixture
def toml(tmp_path: Path) -> Any:
    def write(text: str) -> str:
        path = tmp_path / "tenure.toml"
        path.write_text(text)
        return str(path)

    return write


def test_without_any_source_everything_is_at_its_default() -> None:
    config = load_config()
    assert (config.data_directory, config.offsets_flush, config.offsets_topic_num_partitions) == ("./data", "always", 50)
    assert (config.differences, config.notices, config.profile) == ((), (), "")


def test_the_environment_counts_only_when_it_is_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENURE_NUM_PARTITIONS", "7")
    assert load_config().num_partitions == 1


# --- precedence ---


def test_set_wins_over_environment_over_file_over_profile_over_default(toml: Any) -> None:
    name = "group.min.session.timeout.ms"
    sources: dict[str, Any] = {"profile": "test"}
    timeouts = [load_config().group_min_session_timeout_ms, load_config(**sources).group_min_session_timeout_ms]
    for key, value in (
        ("config_file", toml(f'"{name}" = 101')),
        ("environ", {"TENURE_GROUP_MIN_SESSION_TIMEOUT_MS": "102"}),
        ("settings", [f"{name}=103"]),
    ):
        sources[key] = value
        timeouts.append(load_config(**sources).group_min_session_timeout_ms)
    assert timeouts == [6000, 100, 101, 102, 103]


def test_every_changed_setting_names_its_source(toml: Any) -> None:
    path = toml("max_connections = 5\n")
    config = load_config(
        config_file=path,
        data=["/srv/tenure"],
        settings=["num.partitions=3", "group.max.size=2147483647"],
        environ={"TENURE_AUTO_CREATE_TOPICS_ENABLE": "false"},
    )
    assert config.differences == (
        Difference("log.dirs", "/srv/tenure", "./data", "--data"),
        Difference("max.connections", "5", "2147483647", f"file {path}"),
        Difference("auto.create.topics.enable", "false", "true", "environment TENURE_AUTO_CREATE_TOPICS_ENABLE"),
        Difference("num.partitions", "3", "1", "--set"),
    )


def test_the_last_set_of_a_setting_wins_in_any_spelling() -> None:
    assert load_config(settings=["num.partitions=2", "num_partitions=3"]).num_partitions == 3


def test_a_flag_and_a_different_set_are_refused() -> None:
    assert problem(data=["/a"], settings=["log.dirs=/b"]) == "--data /a: contradicts log.dirs=/b (--set); set only one of them"
    assert load_config(data=["/a"], settings=["log.dirs=/a"]).data_directory == "/a"


def test_a_flag_given_twice_is_refused() -> None:
    assert problem(listen=["localhost:1", "localhost:2"]) == (
        "--listen is given 2 times, once is the limit; for several listeners write --set listeners=NAME://HOST:PORT,..."
    )


@pytest.mark.parametrize("setting", ["127.0.0.1:9093", "PLAINTEXT://127.0.0.1:9093", "plaintext://127.0.0.1:9093"])
def test_a_flag_and_an_equal_set_are_accepted(setting: str) -> None:
    config = load_config(listen=["127.0.0.1:9093"], settings=[f"listeners={setting}", f"advertised.listeners={setting}"], advertise=["127.0.0.1:9093"])
    assert [(listener.host, listener.port) for listener in config.listeners] == [("127.0.0.1", 9093)]
    assert "contradicts" in problem(listen=["127.0.0.1:9093"], settings=["listeners=PLAINTEXT://127.0.0.1:9094"])
    assert "contradicts" in problem(listen=["127.0.0.1:9093"], settings=["listeners=INSIDE://127.0.0.1:9093"])


def test_a_setting_given_twice_in_one_file_is_refused(toml: Any) -> None:
    path = toml('"max.connections" = 1\nmax_connections = 2')
    assert problem(config_file=path) == (
        f"max.connections=2 (file {path}): contradicts max.connections=1 (file {path}); set only one of them"
    )


def test_config_and_profile_can_be_variables(toml: Any) -> None:
    config = load_config(environ={"TENURE_CONFIG": toml("num_partitions = 4"), "TENURE_PROFILE": "test"})
    assert (config.num_partitions, config.profile) == (4, "test")


# --- values ---


@pytest.mark.parametrize(
    ("setting", "limit"),
    [
        ("max.connections=-1", "must be a whole number from 0 to 2147483647"),
        ("max.connections=2147483648", "must be a whole number from 0 to 2147483647"),
        ("max.connections=1e3", "must be a whole number from 0 to 2147483647"),
        ("max.connections=1_000", "must be a whole number from 0 to 2147483647"),
        ("max.connections=" + "9" * 5000, "must be a whole number from 0 to 2147483647"),
        ("max.connections=", "must be a whole number from 0 to 2147483647"),
        ("max.connections=\u0661", "must be a whole number from 0 to 2147483647"),
        ("socket.request.max.bytes=0", "must be a whole number from 1 to 2147483647"),
        ("connections.max.idle.ms=9223372036854775808", "from -9223372036854775808 to 9223372036854775807"),
        ("auto.create.topics.enable=yes", "must be true or false"),
        ("offsets.flush=sometimes", "must be one of always, interval, never"),
        ("log.level=INFO", "must be one of debug, info, warning, error"),
        ("log.dirs=", "must name a directory"),
        ("log.dirs=/a,/b", "one directory only"),
        ("log.dirs=/a,", "has an empty entry"),
        ("cluster.id=a b", "must be at most 64 printable ASCII characters without spaces"),
        ("cluster.id=" + "x" * 65, "must be at most 64 printable ASCII characters without spaces"),
        ("max.connections.per.ip=0", "it needs max.connections.per.ip.overrides"),
        ("max.connections.per.ip.overrides=localhost:5", "is not ADDRESS:COUNT"),
        ("max.connections.per.ip.overrides=127.0.0.1", "is not ADDRESS:COUNT"),
        ("max.connections.per.ip.overrides=127.0.0.1:-1", "is not ADDRESS:COUNT"),
        ("max.connections.per.ip.overrides=::1:1,[::1]:2", "::1 is named twice"),
    ],
)
def test_a_value_beyond_its_limit_is_refused_with_the_limit_and_its_source(setting: str, limit: str) -> None:
    problem_lines = problem(settings=[setting])
    assert limit in problem_lines
    assert problem_lines.startswith(setting[:100])
    assert "(--set)" in problem_lines


def test_values_at_their_limits_are_accepted() -> None:
    config = load_config(
        settings=["max.connections=0", "socket.request.max.bytes=1", "connections.max.idle.ms=-1", "auto.create.topics.enable=FALSE"]
    )
    assert (config.max_connections, config.socket_request_max_bytes, config.connections_max_idle_ms) == (0, 1, -1)
    assert config.auto_create_topics_enable is False


def test_single_addresses_may_have_their_own_number_of_connections() -> None:
    config = load_config(settings=["max.connections.per.ip=0", "max.connections.per.ip.overrides=127.0.0.1:5, [0:0::1]:6,::2:7"])
    assert config.max_connections_per_ip_overrides == (("127.0.0.1", 5), ("::1", 6), ("::2", 7))


def test_contradicting_settings_are_refused_with_both_names() -> None:
    assert problem(settings=["group.min.session.timeout.ms=5000"], environ={"TENURE_GROUP_MAX_SESSION_TIMEOUT_MS": "4000"}) == (
        "group.min.session.timeout.ms=5000 (--set): must not be above group.max.session.timeout.ms, which is 4000 "
        "(environment TENURE_GROUP_MAX_SESSION_TIMEOUT_MS)"
    )


def test_all_problems_are_reported_at_once(toml: Any) -> None:
    path = toml('num_partitions = 0\n"log.level" = "loud"')
    problem_lines = problems(
        config_file=path,
        listen=["nowhere"],
        profile="tset",
        settings=["group.max.size=none", "max.conections=5", "ssl.protocol=TLSv1.3", "novalue"],
        environ={"TENURE_MAX_CONNECTIONS": "-1"},
    )
    assert len(problem_lines) == 9
    assert all("\n" not in line for line in problem_lines)
    for part in (
        f"num.partitions=0 (file {path}): must be",
        f"log.level=loud (file {path}): must be",
        "--listen nowhere: the port is missing",
        "--profile tset: there is no such profile; profiles: test",
        "group.max.size=none (--set): must be",
        "max.conections=5 (--set): there is no such setting; did you mean max.connections?",
        "ssl.protocol=TLSv1.3 (--set): connections are not encrypted here",
        "--set novalue: write --set NAME=VALUE",
        "max.connections=-1 (environment TENURE_MAX_CONNECTIONS): must be",
    ):
        assert any(part in line for line in problem_lines), part


def test_a_problem_is_reported_in_one_line_for_any_value() -> None:
    problem_lines = problem(settings=["log.level=a\nb\x1b[31m"])
    assert problem_lines.startswith(r"log.level='a\nb\x1b[31m' (--set)")
    assert problem(settings=["a\nb=\udcff"]) == r"'a\nb'='\udcff' (--set): there is no such setting"
    assert problem(environ={"TENURE_\x1b": ""}).startswith(r"'TENURE_\x1b'= (environment)")


# --- names ---


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("max.connection", "max.connections"),
        ("group.max.sise", "group.max.size"),
        ("retention.ms", "log.retention.ms"),
        ("num.network.thread", "num.network.threads"),
        ("offset.flush", "offsets.flush"),
        ("group.policy.roster.strickt", "group.policy.roster.strict"),
    ],
)
def test_an_unknown_name_is_refused_with_the_nearest_setting(name: str, nearest: str) -> None:
    assert problem(settings=[f"{name}=1"]) == f"{name}=1 (--set): there is no such setting; did you mean {nearest}?"
    variable = "TENURE_" + name.replace(".", "_").upper()
    suggestion = "TENURE_" + nearest.replace(".", "_").upper()
    assert problem(environ={variable: "1"}) == f"{variable}=1 (environment): there is no such setting; did you mean {suggestion}?"


def test_an_unknown_name_without_a_near_match_is_refused_without_a_suggestion() -> None:
    assert problem(settings=["zzz=1"]) == "zzz=1 (--set): there is no such setting"
    assert problem(settings=["group.policy.bogus=1"]) == "group.policy.bogus=1 (--set): there is no such setting"


def test_a_policy_without_a_default_is_refused_with_the_reason() -> None:
    reason = "the group policy instance.ids has no default; set it for each group (tenure group policy set)"
    assert problem(settings=["group.policy.instance.ids=a"]) == f"group.policy.instance.ids=a (--set): {reason}"
    assert problem(environ={"TENURE_GROUP_POLICY_INSTANCE_IDS": "a"}) == f"TENURE_GROUP_POLICY_INSTANCE_IDS=a (environment): {reason}"


def test_an_unknown_name_is_refused_even_in_an_overridden_source(toml: Any) -> None:
    assert "no such setting" in problem(config_file=toml("max_conections = 1"), settings=["max.connections=1"])


def test_a_flag_written_as_a_variable_leads_to_the_setting() -> None:
    assert problem(environ={"TENURE_DATA": "/srv"}).endswith("did you mean TENURE_LOG_DIRS?")


def test_kubernetes_service_variables_of_a_service_named_tenure_are_ignored() -> None:
    address = "tcp://10.96.0.7:9092"
    injected = {
        "TENURE_SERVICE_HOST": "10.96.0.7",
        "TENURE_SERVICE_PORT": "9092",
        "TENURE_SERVICE_PORT_KAFKA": "9092",
        "TENURE_SERVICE_PORT_KAFKA_EXTERNAL": "9094",
        "TENURE_PORT": address,
        "TENURE_PORT_9092_TCP": address,
        "TENURE_PORT_9092_TCP_PROTO": "tcp",
        "TENURE_PORT_9092_TCP_PORT": "9092",
        "TENURE_PORT_9092_TCP_ADDR": "10.96.0.7",
        "TENURE_HEADLESS_SERVICE_HOST": "10.96.0.8",
        "TENURE_HEADLESS_PORT_9092_TCP_ADDR": "10.96.0.8",
        "TENURE_0_PORT": address,
        "TENURE_NAME": "/web/tenure",
        "TENURE_ENV_PYTHON_VERSION": "3.11",
        "TENURE_BOOTSTRAP": "127.0.0.1:9092",
    }
    config = load_config(environ={**injected, "PATH": "/bin", "TENURELIKE": "1"})
    assert (config.differences, config.notices) == ((), ())
    assert "no such setting" in problem(environ={"TENURE_PORTS": "9092"})


def test_every_setting_can_be_a_variable() -> None:
    assert load_config(environ={"TENURE_CONNECTIONS_MAX_IDLE_MS": " 5 "}).connections_max_idle_ms == 5


def test_kafkas_alternative_setting_names_are_accepted(toml: Any) -> None:
    config = load_config(settings=["log.dir=/a", "broker.id=7"])
    assert (config.data_directory, config.node_id) == ("/a", 7)
    assert load_config(settings=["node.id=3", "broker.id=-1"]).node_id == 3
    assert load_config(config_file=toml("node_id = 3\nbroker_id = -1")).node_id == 3
    assert "contradicts" in problem(settings=["node.id=3", "broker.id=4"])
    assert "contradicts" in problem(config_file=toml('log_dir = "/a"\nlog_dirs = "/b"'))
    assert problem(settings=["broker.id=x"]) == "broker.id=x (--set): must be a whole number from 0 to 2147483647"


# --- Kafka's names without effect, or for unsupported guarantees ---


@pytest.mark.parametrize(
    "setting", ["num.network.threads=4", "log.flush.scheduler.interval.ms=7", "process.roles=controller", "rsm.config.x.y=1", "listener.name.a.max.connections=3"]
)
def test_a_kafka_name_without_effect_is_accepted_with_one_line(setting: str) -> None:
    name, _, value = setting.partition("=")
    assert load_config(settings=[setting]).notices == (Notice("setting without effect", {"setting": name, "value": value, "source": "--set"}),)


@pytest.mark.parametrize(
    ("setting", "reason"),
    [
        ("ssl.client.auth=none", "not encrypted"),
        ("ssl.invented.name=1", "not encrypted"),
        ("sasl.enabled.mechanisms=PLAIN", "do not authenticate"),
        ("listener.name.external.ssl.keystore.location=/k", "not encrypted"),
        ("listener.name.external.plain.sasl.jaas.config=x", "do not authenticate"),
        ("listener.name.external.principal.builder.class=x", "no access control"),
        ("authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer", "no access control"),
        ("super.users=User:admin", "no access control"),
        ("allow.everyone.if.no.acl.found=false", "no access control"),
        ("principal.builder.class=x", "no access control"),
        ("security.inter.broker.protocol=SSL", "only PLAINTEXT"),
        ("connections.max.reauth.ms=1000", "do not authenticate"),
        ("create.topic.policy.class.name=x", "plug-ins"),
        ("min.insync.replicas=2", "one copy"),
        ("min.insync.replicas=two", "one copy"),
        ("default.replication.factor=3", "one copy"),
        ("offsets.topic.replication.factor=3", "one copy"),
        ("log.flush.interval.messages=1", "cannot be promised"),
        ("remote.log.storage.system.enable=true", "no tiered storage"),
    ],
)
def test_a_kafka_setting_for_an_unsupported_guarantee_refuses_the_start(setting: str, reason: str) -> None:
    assert reason in problem(settings=[setting])
    name, _, value = setting.partition("=")
    assert reason in problem(environ={"TENURE_" + name.replace(".", "_").upper(): value})


def test_an_unsupported_setting_overridden_by_a_stronger_source_is_accepted(toml: Any) -> None:
    assert load_config(config_file=toml("min_insync_replicas = 2"), settings=["min.insync.replicas=1"])


@pytest.mark.parametrize("name", ["ssl.keystore.password", "sasl.jaas.config", "delegation.token.secret.key", "my.password", "ssl.key.password"])
def test_secrets_are_never_shown(name: str) -> None:
    assert "hunter2" not in problem(settings=[f"{name}=hunter2"])
    assert "hunter2" not in problem(environ={"TENURE_" + name.replace(".", "_").upper(): "hunter2"})


# --- the file ---


def test_a_kafka_properties_file_needs_few_changes(toml: Any) -> None:
    config = load_config(
        config_file=toml("""
            "process.roles" = "broker,controller"
            "node.id" = 5
            "controller.quorum.bootstrap.servers" = "localhost:9093"
            "listeners" = "PLAINTEXT://localhost:9092,CONTROLLER://:9093"
            "inter.broker.listener.name" = "PLAINTEXT"
            "advertised.listeners" = "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093"
            "controller.listener.names" = "CONTROLLER"
            "listener.security.protocol.map" = ["CONTROLLER:PLAINTEXT", "PLAINTEXT:PLAINTEXT", "SSL:SSL"]
            "num.network.threads" = 3
            "log.dirs" = "/tmp/kraft-combined-logs"
            "num.partitions" = 1
            "offsets.topic.replication.factor" = 1
            "transaction.state.log.min.isr" = 1
            "log.retention.hours" = 168
        """)
    )
    assert (config.node_id, config.data_directory) == (5, "/tmp/kraft-combined-logs")
    assert config.log_retention_ms == 604_800_000
    assert sum(notice.event == "setting without effect" for notice in config.notices) == 6
    assert not [notice.event for notice in config.notices if notice.level == "warning" and "listeners" not in notice.fields]


COMBINED = r"""
# Licensed to the Apache Software Foundation (ASF) under one or more
! also a comment
process.roles=broker,controller
node.id = 5
controller.quorum.bootstrap.servers=localhost:9093
  listeners PLAINTEXT://localhost:9092,\
     CONTROLLER://:9093
inter.broker.listener.name:PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL
num.network.threads=3
log.dirs=/tmp/kraft\u002dcombined logs
auto.create.topics.enable=false
offsets.topic.replication.factor=1
log.retention.hours=168
"""


def properties(tmp_path: Path, text: str) -> str:
    path = tmp_path / "server.properties"
    path.write_text(text)
    return str(path)


def test_a_properties_file_of_kafka_is_read_as_it_is(tmp_path: Path) -> None:
    config = load_config(config_file=properties(tmp_path, COMBINED))
    assert (config.node_id, config.data_directory, config.auto_create_topics_enable) == (5, "/tmp/kraft-combined logs", False)
    assert [(listener.name, listener.port) for listener in config.listeners] == [("PLAINTEXT", 9092)]
    assert config.log_retention_ms == 604_800_000
    assert sum(notice.event == "setting without effect" for notice in config.notices) == 5


# The settings of config/server.properties of Kafka 4.3.1, in its order.
STOCK = """
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=localhost:9093
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
log.dirs=/tmp/kraft-combined-logs
num.partitions=1
num.recovery.threads.per.data.dir=1
offsets.topic.replication.factor=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
log.retention.hours=168
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
"""


def warnings_of(path: str) -> list[str]:
    return [f"{notice.event} {' '.join(notice.fields.values())}" for notice in load_config(config_file=path).notices if notice.level == "warning"]


def test_kafkas_own_properties_file_only_warns_of_open_listeners(tmp_path: Path) -> None:
    warned = warnings_of(properties(tmp_path, STOCK))
    assert len(warned) == 1
    assert warned[0].startswith("listeners can be reached from other machines")


@pytest.mark.parametrize(
    "line",
    [
        "num.io.threads=16",
        "process.roles=controller",
        "controller.quorum.voters=1@a:1,2@b:1,3@c:1",
        "transaction.state.log.replication.factor=2",
        "log.cleaner.threads=4",
        "auto.leader.rebalance.enable=false",
    ],
)
def test_a_changed_value_of_a_properties_file_is_a_warning(tmp_path: Path, line: str) -> None:
    name = line.partition("=")[0]
    path = properties(tmp_path, STOCK.replace("listeners=PLAINTEXT://:9092", "listeners=PLAINTEXT://localhost:9092") + f"\n{line}\n")
    text = (tmp_path / "server.properties").read_text()
    (tmp_path / "server.properties").write_text("\n".join(written for written in text.splitlines() if not written.startswith(f"{name}=") or written == line))
    (warned,) = warnings_of(path)
    assert warned.startswith(f"setting without effect {name} ")


@pytest.mark.parametrize("setting", ["num.io.threads=8", "auto.leader.rebalance.enable=TRUE", "log.cleaner.io.buffer.load.factor=0.90", "compression.type= producer "])
def test_kafkas_default_without_effect_is_no_warning(setting: str) -> None:
    notices = load_config(settings=[setting]).notices
    assert [notice.level for notice in notices] in ([], ["debug"])


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("max.conections=1", "max.conections=1 (file {}): there is no such setting; did you mean max.connections?"),
        ("num.partitions=0", "num.partitions=0 (file {}): "),
        ("max.connections=1\nmax.connections=2", "max.connections=2 (file {0}): contradicts max.connections=1 (file {0}); set only one of them"),
        ("node.id=1\n\nlog.dirs=\\u12x", "--config {}: not in Java's properties format: \\u needs four hexadecimal digits (at line 3)"),
    ],
)
def test_problems_of_a_properties_file_are_reported(tmp_path: Path, text: str, line: str) -> None:
    path = properties(tmp_path, text)
    assert problem(config_file=path).startswith(line.format(path))


def test_an_empty_name_of_a_file_is_refused_on_the_command_line_only() -> None:
    assert problem(config_file="", environ={"TENURE_CONFIG": "/nowhere"}) == "--config : must name a file"
    assert load_config(environ={"TENURE_CONFIG": ""}).num_partitions == 1


def test_values_in_the_file_have_their_types(toml: Any) -> None:
    path = toml('"max.connections" = "5 "\n"auto.create.topics.enable" = 1\n"offsets.flush" = 3\n"num.partitions" = true\nnode_id = 1.5\n"listeners" = [1]')
    problem_lines = problems(config_file=path)
    assert len(problem_lines) == 5
    assert load_config(config_file=toml('"max.connections" = "5"\nauto_create_topics_enable = false')).max_connections == 5


def test_bare_dotted_names_are_refused_with_the_way_to_write_them(toml: Any) -> None:
    path = toml("max.connections = 5\n[group]\nmax.size = 3\ninitial.rebalance.delay.ms = 0")
    assert problems(config_file=path) == [
        f"{name} (file {path}): a name with dots needs quotes in TOML, which reads it as tables: "
        f'write "{name}" = ... or {name.replace(".", "_")} = ...'
        for name in ("max.connections", "group.max.size", "group.initial.rebalance.delay.ms")
    ]


def test_bare_dotted_names_that_contradict_each_other_are_explained(toml: Any) -> None:
    problem_lines = problem(config_file=toml("max.connections = 5\nmax.connections.per.ip = 3"))
    assert "not TOML" in problem_lines
    assert '; names with dots need quotes: "max.connections" = 100; a file' in problem_lines


def test_text_without_quotes_is_explained(toml: Any) -> None:
    hint = "a file in Kafka's own syntax needs a name that ends in .properties"
    assert problem(config_file=toml("listeners=PLAINTEXT://:9092")).endswith(f'text needs quotes: "name" = "text"; {hint}')


def test_an_unreadable_file_is_reported_with_the_reason(tmp_path: Path) -> None:
    missing = tmp_path / "missing.toml"
    assert problem(config_file=str(missing)) == f"--config {missing}: No such file or directory"
    assert problem(environ={"TENURE_CONFIG": str(tmp_path)}) == f"TENURE_CONFIG {tmp_path}: Is a directory"
    binary = tmp_path / "binary.toml"
    binary.write_bytes(b"\xff\xfe")
    assert problem(config_file=str(binary)) == f"--config {binary}: not UTF-8 text"


# --- the profile ---


def test_the_test_profile_is_made_for_integration_tests() -> None:
    config = load_config(profile="test")
    assert (config.group_initial_rebalance_delay_ms, config.group_min_session_timeout_ms) == (0, 100)
    assert (config.auto_create_topics_enable, config.offsets_flush) == (True, "never")
    assert (config.listeners[0].endpoint, config.data_directory, config.temporary_data) == ("127.0.0.1:0", "", True)
    assert {difference.source for difference in config.differences} == {"profile test"}


def test_with_data_the_test_profile_keeps_it() -> None:
    config = load_config(profile="test", data=["/srv"])
    assert (config.data_directory, config.temporary_data) == ("/srv", False)


@pytest.mark.parametrize(
    ("settings", "retention_ms"),
    [
        ([], 604_800_000),
        (["log.retention.hours=1"], 3_600_000),
        (["log.retention.hours=1", "log.retention.minutes=2"], 120_000),
        (["log.retention.hours=1", "log.retention.minutes=2", "log.retention.ms=3"], 3),
        (["log.retention.hours=-1"], -1),
    ],
)
def test_the_finest_given_unit_of_a_setting_counts(settings: list[str], retention_ms: int) -> None:
    assert load_config(settings=settings).log_retention_ms == retention_ms


def test_a_retention_of_0_is_refused() -> None:
    assert problem(settings=["log.retention.hours=0"]).startswith("log.retention.hours=0 (--set): 0 would keep no record")


def test_a_fraction_and_a_list_of_choices_have_their_limits() -> None:
    assert load_config(settings=["log.cleaner.min.cleanable.ratio=0.25"]).log_cleaner_min_cleanable_ratio == 0.25
    assert load_config(settings=["log.cleanup.policy=compact,delete"]).log_cleanup_policy == ("compact", "delete")
    for setting in ("log.cleaner.min.cleanable.ratio=1.5", "log.cleaner.min.cleanable.ratio=nan", "log.cleaner.min.cleanable.ratio=x"):
        assert problem(settings=[setting]).endswith("must be a number from 0 to 1")
    assert problem(settings=["log.cleanup.policy=compact,keep"]).endswith("must contain only compact, delete")


def test_the_default_of_a_policy_is_checked_as_the_policy_is() -> None:
    assert load_config(settings=["group.policy.subscription.change=rebalance"]).group_policies["subscription.change"] == "rebalance"
    with pytest.raises(ConfigError) as refused:
        load_config(settings=["group.policy.subscription.change=maybe"])
    (problem,) = refused.value.problems
    assert "group.policy.subscription.change" in problem
    assert "write keep or rebalance" in problem


def test_a_store_needs_servers_and_a_node_id_and_no_directory() -> None:
    config = load_config(settings=["store=nats://a:4222,b:4222", "node.id=2", "cluster.name=east"])
    assert (config.store.reveal(), config.node_id, config.cluster_name, config.store_replicas) == ("nats://a:4222,b:4222", 2, "east", 3)
    assert config.partitions_max == 500
    assert load_config(settings=["store=nats://a", "node.id=2", "partitions.max=1000"]).partitions_max == 1000
    assert load_config(settings=["store=nats://a", "node.id=2"], data=["./data"]).notices == (Notice("setting without effect", {"setting": "log.dirs", "value": "./data", "source": "--data"}),)
    assert load_config(settings=["cluster.name=east"]).notices == (Notice("setting has no effect without store", {"setting": "cluster.name", "value": "east", "source": "--set"}),)
    assert problem(other_flags={"cluster": "east"}).startswith("--cluster east: only nodes over JetStream have a cluster name: give --store too")
    problem_lines = problems(settings=["store=a:4222", "cluster.name=a.b"])
    assert [part for part in ("nats://", "letters", "node.id") if not any(part in line for line in problem_lines)] == []


def test_a_problem_of_a_flag_names_the_flag() -> None:
    assert problem(other_flags={"nodes": "99999"}).startswith("--nodes 99999: must be")
    assert problem(other_flags={"store": "a:4222", "node-id": "2"}).startswith("--store a:4222: ")


def test_the_password_of_a_store_is_not_shown() -> None:
    config = load_config(settings=["store=nats://me:secret@a:4222,b:4222", "node.id=2"])
    assert "secret" not in str((config.given, config.differences))
    assert "secret" in config.store.reveal()
