"""A copy of a stopped broker's directory is a backup: it serves the same state, and members continue."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.clients.sample_groups import SampleGroups
from tests.support.restartable import RestartableBroker
from tests.support.write_directory import visible_state


@pytest.mark.once  # no dependence on the Python version
def test_a_copy_of_a_stopped_directory_serves_the_same(tmp_path: Path) -> None:
    with RestartableBroker(tmp_path / "data") as original:
        sample_groups = SampleGroups(original.port)
        sample_groups.settle()
        before = visible_state(original.port)
        original.stop()
    subprocess.run(["cp", "-r", tmp_path / "data", tmp_path / "copy"], check=True)
    with RestartableBroker(tmp_path / "copy") as copy:
        assert visible_state(copy.port) == before
        sample_groups.move(copy.port)
        sample_groups.check_seats_kept()
        assert visible_state(copy.port) != before
        # The copy is independent of the original, which is unchanged beside it.
        with RestartableBroker(tmp_path / "data") as original:
            assert visible_state(original.port) == before
        sample_groups.close()
