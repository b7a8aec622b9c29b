"""Analysis of coordinator logs: bronze, silver and gold tables about consumer groups, built with PySpark or without it, and a report.

`rows.py` defines every table. Nothing is imported here, so that a worker process imports only what its task needs.
"""
