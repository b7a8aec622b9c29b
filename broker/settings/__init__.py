"""What an operator may set: tables, sources, checks."""
