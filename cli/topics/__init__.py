"""`tenure topic`: list, create, describe, alter, delete."""
