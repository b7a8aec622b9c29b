"""Nodes over NATS JetStream under real clients: nodes and servers of the engine are killed and frozen."""
