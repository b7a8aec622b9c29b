"""Writes tests/storage/written_by_us: `python -m tests.support.write_directory` with the version whose directory is to
be stored. A stored directory is never rewritten: a new format gets its own folder.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from protocol.messages.metadata import MetadataRequest
from tests.clients.sample_groups import SampleGroups
from tests.clients.stored import everything_stored
from tests.running import ROOT, Client
from tests.support.restartable import RestartableBroker

WRITTEN = ROOT / "tests" / "storage" / "written_by_us"
METADATA = 12
# The lock file is not copied: it names the process that wrote the directory.
NOT_KEPT = shutil.ignore_patterns(".lock")


def visible_state(port: int) -> dict[str, Any]:
    """All stored state that a client can see, as JSON values."""
    with Client(port) as client:
        reply = client.ask(MetadataRequest(None), METADATA)
    groups = {
        group: {
            "state": state,
            "type": kind,
            "protocol": protocol,
            "members": {id: [text(part) for part in member] for id, member in members.items()},
            "offsets": {f"{topic}-{partition}": list(stored) for (topic, partition), stored in offsets.items()},
        }
        for group, (state, kind, protocol, members, offsets) in everything_stored(port).items()
    }
    topics = {topic.name: [topic.topic_id.hex(), topic.is_internal, len(topic.partitions)] for topic in reply.topics}
    return {"cluster": reply.cluster_id, "topics": topics, "groups": groups}


def text(part: str | bytes | None) -> str | None:
    return part.decode() if isinstance(part, bytes) else part


def main(folder: Path) -> None:
    with RestartableBroker(folder / "work") as writer:
        sample_groups = SampleGroups(writer.port)
        sample_groups.settle()
        sample_groups.check_seats_kept()
        sample_groups.close()
        served_state = visible_state(writer.port)
        writer.stop()
    shutil.copytree(folder / "work", folder / "data", ignore=NOT_KEPT)
    shutil.rmtree(folder / "work")
    (folder / "served.json").write_text(json.dumps(served_state, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main(WRITTEN)
