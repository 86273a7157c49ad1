"""Parses the speech remote: COATCHECK_SPEECH_REMOTE_URL, or COATCHECK_SPEECH_REMOTE for any
adapter."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from coatcheck.domain.remote_work import OperatorRemote
from coatcheck.settings.llm_targets import bearer_token
from coatcheck.settings.parsers import SettingRefused

_TOKEN: Final = "token"  # noqa: S105 - the name of a secret, not one
_KIND: Final = {"kind": "remote"}


class _WrittenRemote(msgspec.Struct, forbid_unknown_fields=True):
    """A remote in the setting's JSON."""

    target: dict[str, Any]
    secrets: dict[str, str] = {}


def over_http(url: str, token: str) -> OperatorRemote:
    """A server with submit-job, job-status, job-result and job-cancel below ``url``."""
    target: dict[str, Any] = _KIND | {"adapter": "http", "url": url}
    if not token:
        return OperatorRemote(target=target)
    return OperatorRemote(target=target | {"secret": _TOKEN}, secrets={_TOKEN: token})


def parse_remote(text: str) -> OperatorRemote | None:
    """Parse the JSON object; empty text means none. Errors quote no secret."""
    if not text:
        return None
    try:
        written = msgspec.json.decode(text.encode(), type=_WrittenRemote)
    except msgspec.MsgspecError as error:
        raise SettingRefused(str(error)) from None
    if not isinstance(written.target.get("adapter"), str):
        raise SettingRefused("its target has no adapter")
    for name, value in written.secrets.items():
        try:
            bearer_token(value)
        except SettingRefused:
            raise SettingRefused(f"its secret {name!r} cannot be sent in a header") from None
    return OperatorRemote(target=_KIND | written.target, secrets=written.secrets)
