"""Checks the operator's remotes at start, before any job needs one."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Final

from coatcheck.domain.errors import SettingsInvalid
from coatcheck.domain.remote_work import OperatorRemote
from coatcheck.remotes.definitions import ModalTarget, read_definition
from coatcheck.remotes.errors import RemoteMisdefined

_NAMES_SECRETS: Final = ("secret", "token_id_secret", "token_secret_secret")
"""Fields of definitions that name secrets."""


def check_operator_remote(setting: str, remote: OperatorRemote) -> None:
    """Raise SettingsInvalid, with the setting's name, for a remote that no adapter can use."""
    try:
        target = read_definition(remote.target)
    except RemoteMisdefined as error:
        raise SettingsInvalid(f"{setting}: {error}") from error
    if isinstance(target, ModalTarget) and find_spec("modal") is None:
        raise SettingsInvalid(
            f"{setting}: it needs the Python package modal, which is not installed where this "
            "process runs: install it there with `pip install modal`"
        )
    names = (getattr(target, field, None) for field in _NAMES_SECRETS)
    missing = [name for name in names if name is not None and name not in remote.secrets]
    if missing:
        raise SettingsInvalid(f"{setting}: the secret {missing[0]!r} is missing")
