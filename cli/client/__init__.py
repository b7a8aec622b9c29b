"""A small client of Tenure and of Kafka 2.4 and later, with blocking sockets and the codecs of `protocol`."""

from __future__ import annotations

from cli.client.cluster import Cluster
from cli.client.patience import Limits
from cli.client.shapes import Broker, PartitionInfo, TopicInfo, TopicPartition, by_topic
from cli.client.words import check, failure, name_of
from cli.failure import Exit, Failure

__all__ = ["Broker", "Cluster", "Exit", "Failure", "Limits", "PartitionInfo", "TopicInfo", "TopicPartition", "by_topic", "check", "failure", "name_of"]
