"""Faults of nodes whose logs are in NATS JetStream (the engine): nodes and NATS servers are killed, frozen, cut off and damaged."""
