"""A store over NATS JetStream: nodes on many machines, whose logs the engine replicates; experimental."""
