"""What every command begins with: its environment, and its logs."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping

from coatcheck.cli.errors import show_tracebacks
from coatcheck.settings import Settings, likely_typos
from coatcheck.telemetry.logs import configure_logging

_log = logging.getLogger(__name__)


def overridden(options: Mapping[str, object | None]) -> dict[str, str]:
    """The environment with the options that were given: both are checked in the same place."""
    given = {name: str(value) for name, value in options.items() if value is not None}
    return dict(os.environ) | given


def prepare(settings: Settings) -> None:
    """Set the process's logs up, and warn of settings that look misspelt."""
    configure_logging(settings.log_level, settings.log_format)
    if settings.log_level == "debug":
        show_tracebacks()
    for given, meant in likely_typos(os.environ).items():
        _log.warning("%s is no setting and is ignored; did you mean %s?", given, meant)
