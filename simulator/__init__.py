"""Brokers, disks, a network and clients in virtual time, driven by one seed: see docs/simulator.md."""
