"""Logs in Kafka's file formats: append, flush, read, repair. All I/O goes through the Disk port."""

from storage.directory import DataDirectory
from storage.disk import Disk, OsDisk, SharedDisk
from storage.errors import AppendFailed, DamagedLog, DirectoryForeign, DirectoryLocked, DirectoryUnusable, Fenced, Undecided, describe_error
from storage.extents import Extent
from storage.flush import Flush
from storage.handles import Handles
from storage.log import Log
from storage.opening import Repair, Truncation
from storage.producers import Producer, Producers, ProducerVerdict
from storage.removal import folders_set_aside, remove_folder
from storage.store import (
    NOT_YET,
    Acquired,
    ClusterView,
    HeldBy,
    LogId,
    LogStore,
    NodeInfo,
    OwnedLog,
    Readable,
    RetentionLimits,
    ServedLog,
    TopicInfo,
    TopicLog,
    TopicStore,
    Unreadable,
)
from storage.times import FoundRecord

__all__ = [
    "NOT_YET",
    "Acquired",
    "AppendFailed",
    "ClusterView",
    "DamagedLog",
    "DataDirectory",
    "DirectoryForeign",
    "DirectoryLocked",
    "DirectoryUnusable",
    "Disk",
    "Extent",
    "Fenced",
    "Flush",
    "FoundRecord",
    "Handles",
    "HeldBy",
    "Log",
    "LogId",
    "LogStore",
    "NodeInfo",
    "OsDisk",
    "OwnedLog",
    "Producer",
    "ProducerVerdict",
    "Producers",
    "Readable",
    "Repair",
    "RetentionLimits",
    "ServedLog",
    "SharedDisk",
    "TopicInfo",
    "TopicLog",
    "TopicStore",
    "Truncation",
    "Undecided",
    "Unreadable",
    "describe_error",
    "folders_set_aside",
    "remove_folder",
]
