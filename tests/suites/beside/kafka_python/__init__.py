"""Makes the suite's folder the package `test`, which its own imports expect; Python has another one of that name."""
