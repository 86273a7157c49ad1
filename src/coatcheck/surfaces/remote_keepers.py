"""What becomes of the results of remotes, by endpoint, and which remotes are the operator's own."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Final

from coatcheck.domain.catalogue import UPSTREAM_ENDPOINT
from coatcheck.domain.errors import SettingsInvalid
from coatcheck.domain.remote_work import OperatorRemote
from coatcheck.domain.speech import SPEECH_ENDPOINTS, SpeechType
from coatcheck.engine.remote_keeping import Keeper
from coatcheck.engine.remote_payloads import OPERATORS_PREFIX
from coatcheck.remotes.definitions import ModalTarget, read_definition
from coatcheck.remotes.errors import RemoteMisdefined
from coatcheck.settings import Settings
from coatcheck.surfaces.gateway.remote_results import GatewayKeeper
from coatcheck.surfaces.speech.results import CloneKeeper, SpeechKeeper

KEEPERS: Final[Mapping[str, Keeper]] = {
    UPSTREAM_ENDPOINT: GatewayKeeper(),
    SPEECH_ENDPOINTS[SpeechType.GENERATE]: SpeechKeeper(),
    SPEECH_ENDPOINTS[SpeechType.DESIGN_PREVIEW]: SpeechKeeper(),
    SPEECH_ENDPOINTS[SpeechType.CLONE]: CloneKeeper(),
}
_NAMES_SECRETS: Final = ("secret", "token_id_secret", "token_secret_secret")
"""Fields of definitions."""


def operators(settings: Settings) -> Mapping[str, OperatorRemote]:
    """The operator's targets by the name under which jobs ask for them.

    Raises SettingsInvalid for one that no adapter can use: before any job meets it.
    """
    found: dict[str, OperatorRemote] = {}
    for name, remote in settings.remotes.items():
        _check(f"COATCHECK_REMOTES: {name}", remote)
        found[OPERATORS_PREFIX + name] = remote
    if settings.speech_target is not None:
        _check("COATCHECK_SPEECH_REMOTE", settings.speech_target)
        found["speech"] = settings.speech_target
    return found


def _check(setting: str, remote: OperatorRemote) -> None:
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
        raise SettingsInvalid(f"{setting}: its secrets have no {missing[0]!r}")
