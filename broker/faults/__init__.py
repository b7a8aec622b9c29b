"""Faults that a test asks for: which requests they are for, and what becomes of those. Pure; `broker/control/` carries them out."""
