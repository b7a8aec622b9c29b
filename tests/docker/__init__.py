"""The image, and what the pages say about containers."""

import pytest

pytest.importorskip("yaml", reason="needs PyYAML, which has no wheel for this Python yet")
