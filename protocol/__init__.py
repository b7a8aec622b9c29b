"""Kafka's wire format: bytes to messages and back. Pure: imports nothing of ours, does no I/O."""
