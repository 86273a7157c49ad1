"""Remote targets of registered services: their definitions checked, their results stored."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Container, Iterator
from typing import Final

import msgspec

from coatcheck.blobs import BlobContainer
from coatcheck.blobs.disposition import with_extension
from coatcheck.blobs.keys import artifact_key
from coatcheck.core.remote.payloads import RETRY_FAILED
from coatcheck.core.remote.result_store import ResultOf, StoredArtifact, StoredOutput
from coatcheck.core.upstream_calls import ANSWER_INLINE_BYTES_MAX, UpstreamAnswer, encode_answer
from coatcheck.domain.catalogue import EndpointDefinition, RemoteTargetDefinition, ServiceDefinition
from coatcheck.domain.errors import FieldIssue, InvalidInput
from coatcheck.domain.registration import remote_definition
from coatcheck.domain.service_definition import ADAPTERS
from coatcheck.products.gateway.executor import inline_answer, is_text, storable_type
from coatcheck.remotes.definitions import read_definition
from coatcheck.remotes.errors import RemoteMisdefined
from coatcheck.remotes.protocol import RemoteResult

_OPERATORS: Final = "operator"
_OF_OPERATORS: Final = frozenset({"kind", "adapter", "name"})
_PLACE: Final = re.compile(r"^(.*?)(?: - at `\$(.*)`)?$", re.DOTALL)
_UNKNOWN: Final = re.compile(r"Object contains unknown field `(.*)`")
_MISSING: Final = re.compile(r"Object missing required field `(.*)`")


def check_remotes(definition: ServiceDefinition, of_operator: Container[str]) -> None:
    """Raises InvalidInput, with the issues of each target that its adapter cannot use.

    ``of_operator`` are the names of the remotes that the operator has set up.
    """
    issues = [
        issue
        for place, endpoint in endpoints_of(definition)
        if isinstance(endpoint.target, RemoteTargetDefinition)
        for issue in _issues(f"{place}.target", endpoint.target, of_operator)
    ]
    if issues:
        raise InvalidInput(issues)


def endpoints_of(definition: ServiceDefinition) -> Iterator[tuple[str, EndpointDefinition]]:
    """The endpoints of all versions, each with its place in the document."""
    for number, version in definition.versions.items():
        for at, endpoint in enumerate(version.endpoints):
            yield f"versions.{number}.endpoints[{at}]", endpoint


def _issues(
    field: str, target: RemoteTargetDefinition, of_operator: Container[str]
) -> Iterator[FieldIssue]:
    if target.adapter not in ADAPTERS:
        return  # refused with its reason, whatever its fields are: see ``domain/registration.py``
    definition = remote_definition(target)
    if target.adapter == _OPERATORS:
        for name in definition.keys() - _OF_OPERATORS:
            yield _no_field(field, name, target.adapter)
        if target.name not in of_operator:
            yield FieldIssue(f"{field}.name", "names no remote that the operator has set up")
        return
    try:
        read_definition(definition)
    except RemoteMisdefined as error:
        yield _issue(field, target.adapter, error)


def _issue(field: str, adapter: str, error: RemoteMisdefined) -> FieldIssue:
    if not isinstance(error.__cause__, msgspec.DecodeError):
        return FieldIssue(field, str(error))
    found = _PLACE.match(str(error.__cause__))
    assert found is not None, "the pattern takes any text"
    text, within = found.groups()
    if unknown := _UNKNOWN.fullmatch(text):
        return _no_field(f"{field}{within or ''}", unknown[1], adapter)
    if missing := _MISSING.fullmatch(text):
        return FieldIssue(f"{field}.{missing[1]}", f"is needed by the adapter {adapter}")
    return FieldIssue(f"{field}{within or ''}", text[:1].lower() + text[1:])


def _no_field(field: str, name: str, adapter: str) -> FieldIssue:
    return FieldIssue(f"{field}.{name}", f"is no field of the adapter {adapter}")


ARTIFACT_NAME: Final = "remote-result"
_OK: Final = 200


class GatewayResultStore:
    """The keeper of the gateway's remote targets.

    What it keeps is read as an upstream's answer is, so that all who show or repeat those know it.
    """

    def fails_for_good(self, of: ResultOf) -> bool:
        """Unless somebody asked for retries: trying again is new work, which may be paid for."""
        return not of.note.get(RETRY_FAILED)

    def blob_key(self, of: ResultOf) -> str | None:  # noqa: ARG002 - each upload has its own
        return None

    async def keep(self, of: ResultOf, result: RemoteResult, blobs: BlobContainer) -> StoredOutput:
        media_type = storable_type(result.media_type)
        headers = [("content-type", media_type)]
        pieces = aiter(result)
        begun: list[bytes] = []
        if is_text(headers):
            begun, is_whole = await _beginning(pieces)
            if is_whole:
                answer = inline_answer(_OK, headers, b"".join(begun))
                return StoredOutput(encode_answer(answer))
        key = artifact_key(of.deployment, of.job)
        # Of a stream that breaks off nothing becomes visible.
        stored = await blobs.put(
            key,
            _chained(begun, pieces),
            media_type=media_type,
            file_name=with_extension(ARTIFACT_NAME, media_type),
        )
        answer = UpstreamAnswer(_OK, headers, artifact=ARTIFACT_NAME, size=stored.size)
        artifact = StoredArtifact(ARTIFACT_NAME, key, media_type, stored.size, stored.sha256)
        return StoredOutput(encode_answer(answer), artifact)


async def _beginning(pieces: AsyncIterator[bytes]) -> tuple[list[bytes], bool]:
    """What a result may hold, and whether that is all."""
    begun: list[bytes] = []
    size = 0
    async for piece in pieces:
        begun.append(piece)
        size += len(piece)
        if size > ANSWER_INLINE_BYTES_MAX:
            return begun, False
    return begun, True


async def _chained(begun: list[bytes], rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    while begun:
        yield begun.pop(0)
    async for piece in rest:
        yield piece
