"""The APIs as served: one file for each, or for a few that belong together."""
