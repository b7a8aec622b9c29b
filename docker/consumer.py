"""Prints orders, as a static member of its group: whoever comes back within the session timeout has its partitions again.

Each line carries the group's generation. A rebalance would raise it; restarting this consumer or the broker does not.
"""

import os
import signal
import threading

from kafka import ConsumerRebalanceListener, KafkaConsumer
from kafka.errors import KafkaError


class Seat(ConsumerRebalanceListener):
    """Says which partitions it has."""

    def on_partitions_assigned(self, assigned):
        names = sorted(f"{partition.topic}-{partition.partition}" for partition in assigned)
        print(f"assigned in generation {generation()}: {', '.join(names) or 'nothing'}", flush=True)

    def on_partitions_revoked(self, revoked):
        if revoked and not early_stop_signals.is_set():
            print(f"generation {generation()} is over: a rebalance", flush=True)


def generation():
    return consumer.group_metadata().generation_id


early_stop_signals = threading.Event()
for number in (signal.SIGTERM, signal.SIGINT):
    signal.signal(number, lambda *_: early_stop_signals.set())

consumer = KafkaConsumer(
    bootstrap_servers=os.environ.get("BOOTSTRAP", "127.0.0.1:9092"),
    group_id="billing",
    group_instance_id=os.environ["INSTANCE"],  # one for each process, and the same after its restart
    session_timeout_ms=45_000,  # so long its seat is kept
    auto_offset_reset="earliest",
    enable_auto_commit=False,
)
consumer.subscribe(["orders"], listener=Seat())
uncommitted = False
while not early_stop_signals.is_set():
    try:
        for records in consumer.poll(timeout_ms=1_000).values():
            for record in records:
                place = f"{record.topic}-{record.partition} offset {record.offset}"
                print(f"generation {generation()}, {place}: {record.value.decode()}", flush=True)
                uncommitted = True
        if uncommitted:
            consumer.commit()  # what is printed is done; a kill before this line would print it again
            uncommitted = False
    except KafkaError as error:
        if not error.retriable:
            raise  # for whoever restarts this process
        print(f"trying again: {error}", flush=True)
        early_stop_signals.wait(0.5)
print("stopped; the seat stays", flush=True)
consumer.close()  # a static member does not leave
