"""The handlers of Kafka's APIs: one file for each API, and helpers that several handlers use."""
