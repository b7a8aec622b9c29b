"""Sends an order a second until it is stopped; what was sent while the broker restarted arrives afterwards, once."""

import itertools
import os
import signal
import threading

from kafka import KafkaProducer

early_stop_signals = threading.Event()
for number in (signal.SIGTERM, signal.SIGINT):
    signal.signal(number, lambda *_: early_stop_signals.set())


def failed(error):
    print(f"not delivered: {error}", flush=True)


producer = KafkaProducer(bootstrap_servers=os.environ.get("BOOTSTRAP", "127.0.0.1:9092"))
for number in itertools.count(1):
    producer.send("orders", f"order {number}".encode(), key=str(number).encode()).add_errback(failed)
    if early_stop_signals.wait(float(os.environ.get("SECONDS", "1"))):
        break
producer.flush()
producer.close()
print(f"{number} orders sent", flush=True)
