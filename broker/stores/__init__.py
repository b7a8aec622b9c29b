"""Logs in the data directory: open, append, flush, compact, close."""
