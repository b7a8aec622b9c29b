"""The guarantees that every store for several nodes must keep."""
