"""`offsets.retention.minutes` of each cluster, by which offsets of empty groups expire: from an option, or from the brokers of a live cluster.

The logs do not contain it. Rounds store it; `hygiene` assumes Kafka's default, and says so, if it is unknown.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pipeline.inputs import BadInput, Inputs, cluster_of
from pipeline.progress import Progress
from pipeline.wire import Client

SETTING: Final = "offsets.retention.minutes"
TIMEOUT_S: Final = 10.0  # short, as without the setting only the expiry of offsets is not known
MINUTE_MS: Final = 60_000


def retention_by_cluster(inputs: Inputs, known: Mapping[str, int], progress: Progress) -> dict[str, int]:
    """The setting of each cluster, as known before and by the input."""
    settings = dict(known)
    for directory, _ in inputs.directories:
        if inputs.offsets_retention_ms is not None:
            settings[inputs.cluster or cluster_of(directory)] = inputs.offsets_retention_ms
    for source, _ in inputs.brokers:
        try:
            with Client(source, TIMEOUT_S, config=inputs.config) as client:
                client.logs(())  # learns the cluster's id
                given_ms = inputs.offsets_retention_ms
                settings[inputs.cluster or client.cluster] = given_ms if given_ms is not None else int(client.broker_setting(SETTING)) * MINUTE_MS
        except BadInput as error:
            progress.say(f"{error}: {SETTING} is not known, and its default is assumed")
    return settings
