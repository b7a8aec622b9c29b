"""`tenure analyze`: coordinator logs turned into answers about rebalances, static membership and lag."""
