"""Makes the suite's folder the package `test` that its modules import; without this file they would import Python's own `test`."""
