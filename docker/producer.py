"""Sends an order each second until it is stopped. Orders sent during a restart of the broker arrive after it, exactly once."""

import itertools
import os
import signal
import threading

from kafka import KafkaProducer

stop_requested = threading.Event()
for number in (signal.SIGTERM, signal.SIGINT):
    signal.signal(number, lambda *_: stop_requested.set())


def report_failure(error):
    print(f"not delivered: {error}", flush=True)


producer = KafkaProducer(bootstrap_servers=os.environ.get("BOOTSTRAP", "127.0.0.1:9092"))
for number in itertools.count(1):
    producer.send("orders", f"order {number}".encode(), key=str(number).encode()).add_errback(report_failure)
    if stop_requested.wait(float(os.environ.get("SECONDS", "1"))):
        break
producer.flush()
producer.close()
print(f"{number} orders sent", flush=True)
