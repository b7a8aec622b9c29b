"""The broker's settings: tables, sources, checks."""
