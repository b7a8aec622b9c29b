"""Tests of the container image, and of the pages about containers."""

import pytest

pytest.importorskip("yaml", reason="needs PyYAML, which has no wheel for this Python yet")
