"""The programs behind the Makefile targets: set up, lock, compile, test and package the project. Development only."""
