"""Kafka's wire format: bytes to messages and back. Pure: imports no other package of the project, does no I/O."""
