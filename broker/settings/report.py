"""Log the settings at start, after the last step that can fail: a failed start prints only its error."""

from __future__ import annotations

from broker.logging.logs import log
from broker.settings.config import Config


def log_settings(config: Config) -> None:
    """Log settings that differ from their default, and notices about ignored settings and exposed listeners."""
    for difference in config.differences:
        log.info("setting", name=difference.name, value=difference.value, default=difference.default, source=difference.source)
    if config.temporary_data:
        log.info("data is temporary: it is removed when this process ends", directory=config.data_directory)
    for notice in config.notices:
        if notice.level == "warning":
            log.warning(notice.event, **notice.fields)
        else:
            log.debug(notice.event, **notice.fields)
