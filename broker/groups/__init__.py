"""Partitions of __consumer_offsets: their groups, their way to the log, and how replies of groups leave."""
