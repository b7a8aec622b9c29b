"""Logs in Kafka's own files: append, flush, read, recover. Pure over the Disk port."""

from storage.directory import DataDirectory
from storage.disk import Disk, OsDisk
from storage.errors import AppendFailed, DamagedLog, DirectoryForeign, DirectoryLocked, DirectoryUnusable, Fenced
from storage.handles import Handles
from storage.log import Flush, Log, told
from storage.opening import Recovery, Repair
from storage.store import HeldBy, LogId, LogStore, OwnedLog, Position

__all__ = [
    "AppendFailed",
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
    "OsDisk",
    "OwnedLog",
    "Position",
    "Recovery",
    "Repair",
    "told",
]
