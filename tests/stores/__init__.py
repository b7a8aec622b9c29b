"""What every store for several nodes must keep."""
