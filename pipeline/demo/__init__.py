"""A week of a cluster, made up and written down as a broker would have written it, with the truth beside it.

`commits.py`, which needs numpy, writes a million commits for measurements.
"""

from pipeline.demo.world import write_world

__all__ = ["write_world"]
