"""Fast paths past decoding, for requests that repeat. ARCHITECTURE.md has the invariants they keep."""
