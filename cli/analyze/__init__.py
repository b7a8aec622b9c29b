"""`tenure analyze`: answers about rebalances, static membership and lag, computed from the logs of group coordinators."""
