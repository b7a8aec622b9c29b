"""Log the settings at start, once the start cannot fail any more: a failed start prints only its error."""

from __future__ import annotations

from broker.logging.logs import log
from broker.settings.config import Config


def log_settings(config: Config) -> None:
    """Log settings that differ from their default, and notices about ignored settings and exposed listeners."""
    for difference in config.differences:
        log.info("setting", name=difference.name, value=difference.value, default=difference.default, source=difference.source)
    if config.temporary_data:
        log.info("data goes with this process", directory=config.data_directory)
    for notice in config.notices:
        log.warning(notice)
