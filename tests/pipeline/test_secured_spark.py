"""Spark reads a secured cluster: the path of the file travels to its workers, and no value of it is in a plan, an option, a table or an error."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.pipeline.fake_cluster import commit_offsets
from tests.running import broker, environment
from tests.secured.certificates import Certificates
from tests.secured.listeners import SecuredListener, server_context

pytestmark = pytest.mark.spark

USER, PASSWORD, WRONG = "alice", "hunter2-of-alice", "hunter2-wrong"
SECONDS = 550  # a JVM on a busy machine is slow


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def listener(certificates: Certificates) -> Iterator[SecuredListener]:
    with broker("--profile", "test", "--listen", "127.0.0.1:0", "--set", "offsets.topic.num.partitions=2") as started:
        commit_offsets(started.port, 0)
        with SecuredListener(f"127.0.0.1:{started.port}", server_context(certificates.broker), ("SCRAM-SHA-512",), {USER: PASSWORD}) as opened:
            yield opened


def written(folder: Path, certificates: Certificates, password: str = PASSWORD) -> str:
    path = folder / "client.properties"
    path.write_text(f"security.protocol=SASL_SSL\nssl.ca.location={certificates.ca}\nsasl.username={USER}\nsasl.password={password}\n")
    return str(path)


def test_the_source_reads_it(spark: Any, listener: SecuredListener, certificates: Certificates, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    rows = spark.read.format("koffsets").option("config", written(tmp_path, certificates)).load(f"kafka://{listener.address}")
    assert rows.count() > 0
    rows.explain(True)
    out, err = capfd.readouterr()
    assert PASSWORD not in out + err
    assert set(listener.logins) == {USER}


def test_a_stream_reads_it(spark: Any, listener: SecuredListener, certificates: Certificates, tmp_path: Path) -> None:
    rows = spark.readStream.format("koffsets").option("config", written(tmp_path, certificates)).load(f"kafka://{listener.address}")
    query = rows.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start(str(tmp_path / "rows"))
    assert query.awaitTermination(SECONDS)
    assert spark.read.parquet(str(tmp_path / "rows")).count() > 0
    written_files = [path for folder in ("checkpoint", "rows") for path in (tmp_path / folder).rglob("*") if path.is_file()]
    assert not [path for path in written_files if PASSWORD.encode() in path.read_bytes()]


def test_an_error_in_a_worker_shows_no_secret(spark: Any, listener: SecuredListener, certificates: Certificates, tmp_path: Path) -> None:
    rows = spark.read.format("koffsets").option("config", written(tmp_path, certificates, WRONG)).load(f"kafka://{listener.address}")
    with pytest.raises(Exception, match="wrong user or password for alice") as raised:
        rows.count()
    assert WRONG not in str(raised.value)


@pytest.mark.usefixtures("jvm")
@pytest.mark.parametrize(("password", "code"), [(PASSWORD, 0), (WRONG, 77)])
def test_the_command_reads_it_with_spark(listener: SecuredListener, certificates: Certificates, tmp_path: Path, password: str, code: int) -> None:
    options = ("--offsets", f"kafka://{listener.address}", "--config", written(tmp_path, certificates, password), "--out", str(tmp_path / "out"), "--quiet")
    command = [sys.executable, "-P", "-m", "tenure", "analyze", "run", *options, "--master", "local[2]", "--report", str(tmp_path / "report.html")]
    done = subprocess.run(command, env=environment(PYTHONWARNINGS="default"), capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == code, done.stderr
    assert password not in done.stdout + done.stderr
    assert ("wrong user or password" in done.stderr) == (code != 0)
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and path.name != "client.properties" and password.encode() in path.read_bytes()]
