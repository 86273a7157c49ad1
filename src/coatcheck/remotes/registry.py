"""Creates the adapter for a target's definition.

>>> async with Remotes(guard) as remotes:
...     remote = remotes.open(definition, secret=secrets_of(org).get, org=org)
...     remote_id = await remote.spawn(SpawnRequest(token, body))
"""

from __future__ import annotations

from collections.abc import Callable
from http.cookiejar import CookieJar, DefaultCookiePolicy
from ssl import SSLContext
from types import TracebackType
from typing import Any, Final, Self, assert_never

import httpx2

from coatcheck.domain.errors import UrlForbidden
from coatcheck.egress import Guard
from coatcheck.egress.urls import read_target
from coatcheck.remotes.caller import Address, RemoteCaller, RemoteTimeouts
from coatcheck.remotes.definitions import (
    FalTarget,
    HttpRemoteTarget,
    ModalTarget,
    ReplicateTarget,
    RunpodTarget,
    read_definition,
)
from coatcheck.remotes.fal import FalRemote
from coatcheck.remotes.files import Files
from coatcheck.remotes.http import HttpRemote
from coatcheck.remotes.modal import ModalRemote, load_modal
from coatcheck.remotes.protocol import Remote, RemoteMisdefined
from coatcheck.remotes.replicate import ReplicateRemote
from coatcheck.remotes.runpod import RunpodRemote
from coatcheck.tls import trusted_authorities

SecretOf = Callable[[str], str | None]
"""Returns a secret by its name; None if the target's owner may use no such secret."""

_KEPT_CONNECTIONS_MAX: Final = 100
_KEPT_SECONDS: Final = 4.0
"""Shorter than servers keep idle connections, so that they do not close one during a request."""
_PREDICTIONS: Final = "/predictions"


class Remotes:
    """Opens targets and holds the connections of all of them. A context manager.

    ``tls`` is for tests and others with their own certificates.
    """

    def __init__(
        self, guard: Guard, *, timeouts: RemoteTimeouts | None = None, tls: SSLContext | None = None
    ) -> None:
        self._timeouts = timeouts or RemoteTimeouts()
        self._tls = tls
        self._limits = httpx2.Limits(
            max_connections=None,  # bounded by the number of concurrent queries
            max_keepalive_connections=_KEPT_CONNECTIONS_MAX,
            keepalive_expiry=_KEPT_SECONDS,
        )
        self._guarded = guard.client(limits=self._limits, verify=tls)
        self._trusting: httpx2.AsyncClient | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._guarded.aclose()
        if self._trusting is not None:
            await self._trusting.aclose()

    def open(
        self, definition: bytes | Any, *, secret: SecretOf, by_operator: bool = False, org: str = ""
    ) -> Remote:
        """The adapter for a target. Raises RemoteMisdefined, which says what to change.

        ``secret`` must return only secrets that the definition's owner may use: a definition
        chooses both the secret and where it is sent. ``by_operator``: the target is the operator's
        own, and its URL may be on a private network. ``org`` is the organisation whose limits the
        name look-ups count for.
        """
        target = read_definition(definition)
        match target:
            case HttpRemoteTarget():
                caller = self._caller(target.url, target.secret, "Bearer", secret, by_operator, org)
                return HttpRemote(caller, self._files(caller), target.media_type)
            case ReplicateTarget():
                caller = self._caller(target.url, target.secret, "Bearer", secret, by_operator, org)
                return ReplicateRemote(
                    caller,
                    self._files(caller),
                    path=_predictions_of(target),
                    version=target.version,
                    marks=target.marks,
                    output=target.output,
                )
            case RunpodTarget():
                caller = self._caller(target.url, target.secret, "Bearer", secret, by_operator, org)
                return RunpodRemote(
                    caller,
                    self._files(caller),
                    endpoint=target.endpoint,
                    marks=target.marks,
                    output=target.output,
                )
            case FalTarget():
                caller = self._caller(target.url, target.secret, "Key", secret, by_operator, org)
                return FalRemote(
                    caller,
                    self._files(caller),
                    model=target.model,
                    marks=target.marks,
                    output=target.output,
                )
            case ModalTarget():
                if not by_operator:
                    raise RemoteMisdefined(
                        "Only the operator may define targets with the adapter `modal`: what such "
                        "a function returns is unpickled here, and could run any code."
                    )
                return self._modal(target, secret)
            case _:
                assert_never(target)

    def _modal(self, target: ModalTarget, secret: SecretOf) -> Remote:
        credentials = None
        if target.token_id_secret is not None and target.token_secret_secret is not None:
            credentials = (
                _value(target.token_id_secret, secret),
                _value(target.token_secret_secret, secret),
            )
        # A function's return value may name a file, which is on no server that we know.
        nowhere = Address(httpx2.URL("https://modal.invalid"), self._guarded, None, ())
        return ModalRemote(
            load_modal(),
            self._files(RemoteCaller(nowhere, self._timeouts)),
            app=target.app,
            function=target.function,
            environment=target.environment,
            credentials=credentials,
            marks=target.marks,
            output=target.output,
            timeouts=self._timeouts,
        )

    def _caller(
        self,
        url: str,
        name: str | None,
        scheme: str,
        secret: SecretOf,
        by_operator: bool,
        org: str,
    ) -> RemoteCaller:
        value = None if name is None else _value(name, secret)
        address = Address(
            _read_url(url),
            self._trusting_client() if by_operator else self._guarded,
            None if value is None else f"{scheme} {value}",
            () if value is None else (value,),
            org,
        )
        return RemoteCaller(address, self._timeouts)

    def _trusting_client(self) -> httpx2.AsyncClient:
        """The client for the operator's targets, made for the first of them: the authorities that
        it trusts take 1.5 MB and 20 ms of CPU to read."""
        if self._trusting is None:
            self._trusting = httpx2.AsyncClient(
                limits=self._limits,
                verify=trusted_authorities(trust_env=False) if self._tls is None else self._tls,
                trust_env=False,
                follow_redirects=False,
                cookies=CookieJar(policy=DefaultCookiePolicy(allowed_domains=[])),
            )
        return self._trusting

    def _files(self, caller: RemoteCaller) -> Files:
        return Files(caller, self._guarded)


def _predictions_of(target: ReplicateTarget) -> str:
    if target.model is not None:
        return f"/models/{target.model}{_PREDICTIONS}"
    if target.deployment is not None:
        return f"/deployments/{target.deployment}{_PREDICTIONS}"
    return _PREDICTIONS


def _value(name: str, secret: SecretOf) -> str:
    value = secret(name)
    if not value:
        raise RemoteMisdefined(f"The remote target may use no secret named {name!r}.")
    if not (value.isascii() and value.isprintable()) or " " in value:
        raise RemoteMisdefined(f"The secret {name!r} has a character that headers cannot contain.")
    return value


def _read_url(url: str) -> httpx2.URL:
    """Parse the URL; the guard decides about its address when it is called."""
    try:
        read_target(url)
    except UrlForbidden as error:
        raise RemoteMisdefined(f"The remote target's url: {error}") from error
    parsed = httpx2.URL(url)
    if parsed.query:
        raise RemoteMisdefined("The remote target's url must have no query.")
    return parsed
