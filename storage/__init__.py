"""Logs in Kafka's own files: append, flush, read, recover. Pure over the Disk port."""

from storage.directory import DataDirectory
from storage.disk import Disk, OsDisk
from storage.errors import AppendFailed, DamagedLog, DirectoryForeign, DirectoryLocked, DirectoryUnusable, Fenced, Undecided
from storage.handles import Handles
from storage.log import Flush, Log, told
from storage.opening import Recovery, Repair
from storage.store import Acquired, ClusterView, HeldBy, LogId, LogStore, NodeInfo, OwnedLog, Position, Unreadable

__all__ = [
    "Acquired",
    "AppendFailed",
    "ClusterView",
    "DamagedLog",
    "DataDirectory",
    "DirectoryForeign",
    "DirectoryLocked",
    "DirectoryUnusable",
    "Disk",
    "Fenced",
    "Flush",
    "Handles",
    "HeldBy",
    "Log",
    "LogId",
    "LogStore",
    "NodeInfo",
    "OsDisk",
    "OwnedLog",
    "Position",
    "Recovery",
    "Repair",
    "Undecided",
    "Unreadable",
    "told",
]
