"""What a start tells of its settings, once nothing keeps it from starting: a start that fails is its error alone."""

from __future__ import annotations

from broker.logging.logs import log
from broker.settings.config import Config


def tell_settings(config: Config) -> None:
    """What is not as by default, and what is ignored or open to everybody."""
    for difference in config.differences:
        log.info("setting", name=difference.name, value=difference.value, default=difference.default, source=difference.source)
    if config.temporary_data:
        log.info("data goes with this process", directory=config.data_directory)
    for notice in config.notices:
        log.warning(notice)
