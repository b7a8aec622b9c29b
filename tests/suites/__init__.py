"""Published test suites of clients, against this broker: `make suite-kafka-python` and so on.

A suite is fetched by name from the registry of its client, never changed, and run against its own broker. Failures are compared with
`known/NAME.toml`: an unlisted failure, and a listed one that passes, fail the run.
"""
