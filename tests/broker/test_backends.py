"""The table of backends."""

from __future__ import annotations

import pytest

from broker.backends.table import BACKENDS, DIRECTORY, JETSTREAM, Backend, backend_of, load
from broker.settings.config import SUPPORTED


@pytest.mark.parametrize("backend", BACKENDS)
def test_each_row_names_what_exists(backend: Backend) -> None:
    assert all(callable(load(name)) for name in (backend.single, backend.several, backend.check_settings) if name)
    assert backend.several
    assert set(backend.defaults) <= set(SUPPORTED)
    assert all(default != SUPPORTED[name].default for name, default in backend.defaults.items())


def test_the_scheme_of_the_setting_store_chooses_the_backend() -> None:
    assert [backend_of(store) for store in ("", "nats://a", "tls://a:4222,b", "a:4222")] == [DIRECTORY, *3 * [JETSTREAM]]
