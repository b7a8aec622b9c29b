"""Sockets, connections, frames: bytes to requests and replies to bytes."""
