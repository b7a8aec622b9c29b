"""A store over NATS JetStream, below called the engine: it replicates the logs of nodes on many machines; experimental."""
