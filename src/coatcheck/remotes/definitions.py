"""The JSON definitions of remote targets, one type per adapter.

A definition names secrets and never contains them; whoever opens it supplies their values. The
operator's remotes are checked at start, before any job needs one.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Annotated, Any, Final, Literal

import msgspec

from coatcheck.domain.errors import SettingsInvalid
from coatcheck.domain.patterns import whole
from coatcheck.domain.remote_work import OperatorRemote
from coatcheck.remotes import fal, replicate, runpod
from coatcheck.remotes.payloads import Marks, OutputChoice
from coatcheck.remotes.protocol import RemoteMisdefined

_SEGMENT: Final = r"[A-Za-z0-9][A-Za-z0-9._-]*"

Url = Annotated[str, msgspec.Meta(min_length=1, max_length=2_048)]
SecretName = Annotated[str, msgspec.Meta(pattern=whole("[A-Za-z][A-Za-z0-9_.-]{0,99}"))]
Name = Annotated[str, msgspec.Meta(pattern=whole("[A-Za-z0-9_][A-Za-z0-9_.-]{0,199}"))]
OwnerAndName = Annotated[str, msgspec.Meta(pattern=whole(f"{_SEGMENT}/{_SEGMENT}"), max_length=200)]
FalModel = Annotated[str, msgspec.Meta(pattern=whole(f"{_SEGMENT}(/{_SEGMENT})+"), max_length=200)]
MediaType = Annotated[str, msgspec.Meta(pattern=whole("[!-~]+/[ -~]+"), max_length=255)]


class _Target(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="adapter", kw_only=True
):
    kind: Literal["remote"]


class HttpRemoteTarget(_Target, frozen=True, tag="http", kw_only=True):
    """A server with submit-job, job-status, job-result and job-cancel below ``url``."""

    url: Url
    secret: SecretName | None = None
    media_type: MediaType | None = None


class ModalTarget(_Target, frozen=True, tag="modal", kw_only=True):
    """A deployed function on Modal."""

    app: Name
    function: Name
    environment: Name | None = None
    token_id_secret: SecretName | None = None
    token_secret_secret: SecretName | None = None
    marks: Marks = Marks()
    output: OutputChoice = OutputChoice()


class ReplicateTarget(_Target, frozen=True, tag="replicate", kw_only=True):
    """A model on Replicate: one of ``version``, ``model`` (an official one) and ``deployment``."""

    secret: SecretName
    version: Annotated[str, msgspec.Meta(pattern=whole("[!-~]{1,300}"))] | None = None
    model: OwnerAndName | None = None
    deployment: OwnerAndName | None = None
    url: Url = replicate.URL
    marks: Marks = Marks()
    output: OutputChoice = OutputChoice()


class RunpodTarget(_Target, frozen=True, tag="runpod", kw_only=True):
    """A queue-based RunPod serverless endpoint, by its id."""

    secret: SecretName
    endpoint: Name
    url: Url = runpod.URL
    marks: Marks = Marks()
    output: OutputChoice = OutputChoice()


class FalTarget(_Target, frozen=True, tag="fal", kw_only=True):
    """A model on fal, as ``owner/app`` or ``owner/app/path``."""

    secret: SecretName
    model: FalModel
    url: Url = fal.URL
    marks: Marks = Marks()
    output: OutputChoice = OutputChoice()


RemoteTarget = HttpRemoteTarget | ModalTarget | ReplicateTarget | RunpodTarget | FalTarget
_ADAPTERS: Final = ("http", "modal", "replicate", "runpod", "fal")


def read_definition(definition: bytes | Any) -> RemoteTarget:
    """Parse a definition, from JSON or decoded JSON. Raises RemoteMisdefined."""
    try:
        target: RemoteTarget
        if isinstance(definition, bytes):
            target = msgspec.json.decode(definition, type=RemoteTarget)
        else:
            target = msgspec.convert(definition, RemoteTarget)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        hint = f"; use one of {', '.join(_ADAPTERS)}" if "`$.adapter`" in str(error) else ""
        raise RemoteMisdefined(f"The remote target is not valid: {error}{hint}") from error
    if isinstance(target, ReplicateTarget):
        _check_one_of(version=target.version, model=target.model, deployment=target.deployment)
    if isinstance(target, ModalTarget):
        _check_both(target)
    return target


def _check_one_of(**choices: str | None) -> None:
    if sum(choice is not None for choice in choices.values()) != 1:
        raise RemoteMisdefined(f"The remote target needs exactly one of {', '.join(choices)}.")


def _check_both(target: ModalTarget) -> None:
    if (target.token_id_secret is None) != (target.token_secret_secret is None):
        raise RemoteMisdefined(
            "The remote target needs both token_id_secret and token_secret_secret, or neither."
        )


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
