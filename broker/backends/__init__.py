"""The kinds of stores: one row for each, and the classes that build their parts."""
