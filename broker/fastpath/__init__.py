"""Shortcuts past decoding, for requests that come again and again."""
