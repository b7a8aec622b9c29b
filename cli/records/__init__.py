"""`tenure produce` and `tenure consume`: records into topics, and out of them."""
