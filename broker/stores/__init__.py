"""Logs in a directory: opened, appended to, flushed, closed."""
