"""Consumer groups as state machines: pure, told the time, and asked one call at a time."""

from coordinator.hold import Fact, Held, Hold, Parts, facts_bytes

__all__ = ["Fact", "Held", "Hold", "Parts", "facts_bytes"]
