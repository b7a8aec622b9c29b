"""Facts and notes folded into spells, episodes and causes: what happened to a group. Pure."""
