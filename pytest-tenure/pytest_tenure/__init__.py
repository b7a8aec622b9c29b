"""pytest-tenure: a Kafka for each test, which does what the test tells it."""

__version__ = "0.1.0"
