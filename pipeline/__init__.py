"""Analysis of coordinator logs: tables about consumer groups (bronze: as read, silver: decoded, gold: results), with or without Spark, and a report.

`rows.py` defines every table. Nothing is imported here, so that a worker process imports only what its task needs.
"""
