"""What the broker says: one line for each event, for people or as JSON, written beside the loop."""
