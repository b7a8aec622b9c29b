# conftest.py: the fixture `kafka` is the address of a broker; under pytest-xdist each worker has its own.
import os
import shutil
import subprocess

import pytest


@pytest.fixture(scope="session")
def kafka():
    """The broker that KAFKA names, as in compose.test.yaml; otherwise a broker for these tests, whose data is deleted after them."""
    if "KAFKA" in os.environ:
        yield os.environ["KAFKA"]
        return
    tenure = shutil.which("tenure") or pytest.exit("no `tenure` on PATH, and KAFKA=HOST:PORT names no broker", 1)
    with subprocess.Popen([tenure, "serve", "--profile", "test"], stdout=subprocess.PIPE, text=True) as broker:
        try:
            listening = broker.stdout.readline()  # listening PLAINTEXT 127.0.0.1:41953
            assert listening, f"tenure ended with exit code {broker.wait()}"
            address = listening.split()[-1]
            subprocess.run([tenure, "health", address, "--wait", "20"], check=True)
            yield address
        finally:
            broker.terminate()
