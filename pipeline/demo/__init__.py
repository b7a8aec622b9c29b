"""A week of a cluster, made up and written down as a broker would have written it, with the truth beside it."""

from pipeline.demo.world import write_world

__all__ = ["write_world"]
