"""Faults of nodes over NATS JetStream: nodes and servers of the engine are killed, frozen, cut off and damaged."""
