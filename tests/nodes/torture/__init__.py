"""Random faults of three nodes under clients that know what they were promised: `make nodes-test ARGS="--torture --minutes 10 --seed 7"`.

nodes.py      the nodes to torture, over a directory or over JetStream, each with its own wall clock
links.py      connections with short timeouts, which tell whether a request was sent at all
topics.py     topics that are deleted and created again, and the ledger of records of each incarnation
accounts.py   the ledger of committed offsets
owners.py     who holds, claims and serves each log
clients.py    the threads that write, read, commit, delete records, recreate topics and compare owners
faults.py     kills, stops, freezes, drains and one damaged offsets partition
campaign.py   one run: start, faults, recovery, final comparison
"""
