"""Brokers that a test controls: clusters in memory within one process, their clock and faults, and the HTTP port that reaches them."""
