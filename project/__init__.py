"""The words of the Makefile: what sets up, locks, compiles, tests and packs the project. Development only."""
