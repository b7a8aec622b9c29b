"""The cost of the broker, as ratios to a server that does nothing: `python -m bench`, or `make bench`."""
