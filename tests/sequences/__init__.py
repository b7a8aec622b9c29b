"""Random sequences of group requests, played both to this broker and to Apache Kafka: `make oracle`.

A sequence is a list of steps that can be written as JSON. Members have names (`@p1` is the newest member id of the actor p1), so that
a sequence can be played to any server and the replies compared. steps.py defines the steps, player.py plays one sequence, traces.py
has the results, comparing.py compares them, choosing.py generates sequences, shrinking.py shortens them, hunting.py plays many at once.
recorded/ contains sequences with Kafka's replies, for test_recorded.py.
"""
