"""A data directory as the store of one of several nodes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from broker.backends.directory import DirectoryUpkeep
from broker.backends.node_port import NodeHost
from broker.backends.port import Host
from broker.cluster.channel import UnixChannel
from broker.net.reply_writer import Transport
from broker.runtime.start import ExitCode, StartError
from broker.stores.shared import SharedStore, SharedTopicStore
from storage import NodeInfo, TopicStore
from storage.node_directory import NODES_FOLDER


class SharedStores(DirectoryUpkeep):
    def __init__(self, host: Host, node: NodeHost) -> None:
        machine = host.machine
        self.guard: Callable[[Any], Transport] | None = None
        store = self.store = SharedStore(
            host.config,
            host.loop,
            machine.disk,
            host.log_files_max,
            machine.workers,
            machine.random_bytes,
            machine.monotonic,
            machine.wall_ns,
            machine.sleep,
            machine.live_nodes,
        )
        super().__init__(host, store)
        folder, node_id = f"{store.data_path}/{NODES_FOLDER}", host.config.node_id
        try:
            sock = machine.listen_for_nodes(folder, node_id)
        except OSError as error:
            store.close()
            reason = error.strerror or error
            raise StartError(f"data directory {store.data_path}: several nodes need Unix sockets in it, and {NODES_FOLDER}/{node_id}.sock cannot be made: {reason}", ExitCode.DIRECTORY) from error
        self.channel = UnixChannel(
            host.loop, sock, lambda to, new_protocol: machine.connect_to_node(host.loop, folder, to, new_protocol), node.links, node.buffered_protocol
        )

    async def open(self, me: NodeInfo) -> None: ...

    def topic_store(self) -> TopicStore:
        return SharedTopicStore(self.store)
