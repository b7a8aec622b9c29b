"""Coordinator logs turned into answers about consumer groups, with PySpark: bronze, silver, gold, a report.

`rows.py` defines every table. Nothing is imported here: a worker process imports only what its task needs.
"""
