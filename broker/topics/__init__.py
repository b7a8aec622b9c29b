"""Topics: the registry, their partitions and logs, appending, waiting fetches, compaction, retention."""
