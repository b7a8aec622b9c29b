"""Other people's test suites, as they publish them, against this broker: `make suite-kafka-python` and its like.

A suite is fetched by name from the registry that its client is published in, never changed, run against a broker of its own,
and what failed is compared with `known/NAME.toml`: a failure that is not listed there, and a listed one that is none, fail.
"""
