"""Makes the suite's folder the package `test`, which its own imports expect; Python has a package of that name."""
