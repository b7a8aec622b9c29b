"""Logs in NATS JetStream, which replicates them between machines. This folder calls JetStream's servers the engine. Experimental."""
