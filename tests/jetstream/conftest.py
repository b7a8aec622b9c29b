"""The engine's servers, as tests/stores starts them."""

from tests.stores.conftest import one_server, three_servers

__all__ = ["one_server", "three_servers"]
