"""Random sequences of group requests, played both to this broker and to Apache Kafka: `make oracle`.

A sequence is a list of steps that can be written as JSON. Members have names (`@p1` is the id that the actor p1 got last), so that
a sequence can be played to any server and the replies compared. steps.py defines the steps, player.py plays one sequence,
traces.py compares the results, choosing.py invents sequences, shrinking.py shortens them, hunting.py plays many at once.
recorded/ holds sequences with Kafka's replies, for test_recorded.py.
"""
