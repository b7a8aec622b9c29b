"""The real coordinator in virtual time, with simulated clients. No socket, no clock, no thread.

    world = World(start_ms=1_700_000_000_000)
    pods = [world.client("checkout", f"checkout-{n}", topics={"orders": 12}, instance=f"checkout-{n}") for n in range(4)]
    for pod in pods:
        pod.start()
    world.at(world.now + 3_600_000, pods[0].restart, 20_000)     # it stops, and returns after 20 s
    world.run(7_200_000)                                         # two hours
    world.episodes("checkout")                                   # the true rebalances, which an analysis of the logs has to find
    world.recorder                                               # both logs

Only heartbeats with a visible effect are sent, so that a simulated week costs only its rebalances and commits.
"""

from pipeline.virtual.assigning import ASSIGNORS
from pipeline.virtual.client import Client
from pipeline.virtual.recorder import DiscardingRecorder, MemoryRecorder, Recorder
from pipeline.virtual.truth import Change, Restart, TrueRebalance
from pipeline.virtual.world import World

__all__ = ["ASSIGNORS", "Change", "Client", "DiscardingRecorder", "MemoryRecorder", "Recorder", "Restart", "TrueRebalance", "World"]
