"""Prints orders, as a static member of its group: after a restart within the session timeout it gets its partitions back.

Each line carries the group's generation. A rebalance would raise it; restarting this consumer or the broker does not.
"""

import os
import signal
import threading

from kafka import ConsumerRebalanceListener, KafkaConsumer
from kafka.errors import KafkaError


class AssignmentPrinter(ConsumerRebalanceListener):
    """Prints each assignment of the consumer."""

    def on_partitions_assigned(self, assigned):
        names = sorted(f"{partition.topic}-{partition.partition}" for partition in assigned)
        print(f"assigned in generation {generation()}: {', '.join(names) or 'nothing'}", flush=True)

    def on_partitions_revoked(self, revoked):
        if revoked and not stop_requested.is_set():
            print(f"generation {generation()} is over: a rebalance", flush=True)


def generation():
    return consumer.group_metadata().generation_id


stop_requested = threading.Event()
for number in (signal.SIGTERM, signal.SIGINT):
    signal.signal(number, lambda *_: stop_requested.set())

consumer = KafkaConsumer(
    bootstrap_servers=os.environ.get("BOOTSTRAP", "127.0.0.1:9092"),
    group_id="billing",
    group_instance_id=os.environ["INSTANCE"],  # unique for each process, and unchanged by a restart
    session_timeout_ms=45_000,  # how long an absent member keeps its partitions
    auto_offset_reset="earliest",
    enable_auto_commit=False,
)
consumer.subscribe(["orders"], listener=AssignmentPrinter())
uncommitted = False
while not stop_requested.is_set():
    try:
        for records in consumer.poll(timeout_ms=1_000).values():
            for record in records:
                place = f"{record.topic}-{record.partition} offset {record.offset}"
                print(f"generation {generation()}, {place}: {record.value.decode()}", flush=True)
                uncommitted = True
        if uncommitted:
            consumer.commit()  # printed records are processed; after a kill before this line they are printed again
            uncommitted = False
    except KafkaError as error:
        if not error.retriable:
            raise  # the process ends; a supervisor restarts it
        print(f"trying again: {error}", flush=True)
        stop_requested.wait(0.5)
print("stopped; its partitions stay assigned to it", flush=True)
consumer.close()  # a static member does not leave
