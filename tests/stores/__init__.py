"""The guarantees of every store for several nodes."""
