"""The APIs as served: one file for each, and what several of them share."""
