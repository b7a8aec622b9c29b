"""A simulated week of a cluster, written as a broker would write it, with the truth beside it.

`commits.py`, which needs numpy, writes a million commits for measurements.
"""

from pipeline.demo.world import write_world

__all__ = ["write_world"]
