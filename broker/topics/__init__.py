"""Topics: registry, settings, partitions and their logs, appends, waiting fetches, retention, deletion."""
