"""Groups of the newer consumer protocol, whose members send only heartbeats and whose assignment the coordinator computes."""
