"""Fast paths, which answer repeated requests without decoding them. ARCHITECTURE.md lists their invariants."""
