"""What the broker costs, as ratios to a server that does nothing: `python -m bench`, or `make bench`."""
