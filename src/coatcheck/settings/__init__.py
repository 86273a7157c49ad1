"""All settings: one frozen object, read once from the environment."""

from coatcheck.settings.settings import (
    SETTINGS,
    Settings,
    check_environment,
    likely_typos,
)

__all__ = ["SETTINGS", "Settings", "check_environment", "likely_typos"]
