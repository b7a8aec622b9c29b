"""Partitions of __consumer_offsets: loading, appending to their logs, notes, and the replies of groups."""
