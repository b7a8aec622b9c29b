"""Random sequences of group requests, played to this broker and to Apache Kafka alike: `make oracle`.

A sequence is a list of steps, plain enough for JSON, in which members go by names (`@p1` is whatever id the actor p1 was given
last), so that it can be played to any server and its answers compare. steps.py says what a step may be, player.py plays one
sequence, traces.py compares what came of it, choosing.py invents sequences, shrinking.py makes them short, hunting.py drives
many at once. recorded/ holds sequences with Kafka's answers, for test_recorded.py.
"""
