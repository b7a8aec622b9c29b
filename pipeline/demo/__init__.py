"""A simulated week of a cluster, written as a broker's data directory, with the true events as JSON.

`commits.py`, which needs numpy, writes a million commits for benchmarks.
"""

from pipeline.demo.world import write_world

__all__ = ["write_world"]
