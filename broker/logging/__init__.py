"""Logging: one line per event, for people or as JSON, written by a separate thread."""
