"""`tenure produce` and `tenure consume`: write records to topics, and read them."""
