"""Remote targets of registered services: checks their definitions and stores their results."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Container, Iterator
from typing import Final

import msgspec

from coatcheck.blobs import BlobContainer
from coatcheck.blobs.disposition import with_extension
from coatcheck.blobs.keys import artifact_key
from coatcheck.core.remote.result_store import RETRY_FAILED, ResultOf, StoredArtifact, StoredOutput
from coatcheck.core.upstream_calls import ANSWER_INLINE_BYTES_MAX, UpstreamAnswer, encode_answer
from coatcheck.domain.catalogue import EndpointDefinition, RemoteTargetDefinition, ServiceDefinition
from coatcheck.domain.errors import FieldIssue, InvalidInput
from coatcheck.domain.registration import remote_definition
from coatcheck.domain.service_definition import ADAPTERS
from coatcheck.products.gateway.executor import inline_answer, is_text, storable_type
from coatcheck.remotes.definitions import read_definition
from coatcheck.remotes.protocol import RemoteMisdefined, RemoteResult

_OPERATORS: Final = "operator"
_OF_OPERATORS: Final = frozenset({"kind", "adapter", "name"})
_PLACE: Final = re.compile(r"^(.*?)(?: - at `\$(.*)`)?$", re.DOTALL)
_UNKNOWN: Final = re.compile(r"Object contains unknown field `(.*)`")
_MISSING: Final = re.compile(r"Object missing required field `(.*)`")


def check_remotes(definition: ServiceDefinition, of_operator: Container[str]) -> None:
    """Check every remote target with its adapter. Raises InvalidInput with all issues.

    ``of_operator`` has the names of the remotes that the operator has set up.
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
    """The endpoints of all versions, each with its path in the document."""
    for number, version in definition.versions.items():
        for at, endpoint in enumerate(version.endpoints):
            yield f"versions.{number}.endpoints[{at}]", endpoint


def _issues(
    field: str, target: RemoteTargetDefinition, of_operator: Container[str]
) -> Iterator[FieldIssue]:
    if target.adapter not in ADAPTERS:
        return  # ``domain/registration.py`` refuses an unknown adapter
    definition = remote_definition(target)
    if target.adapter == _OPERATORS:
        for name in definition.keys() - _OF_OPERATORS:
            yield _unknown_field(field, name, target.adapter)
        if target.name not in of_operator:
            yield FieldIssue(
                f"{field}.name", "is not the name of a remote that the operator set up"
            )
        return
    try:
        read_definition(definition)
    except RemoteMisdefined as error:
        yield _issue(field, target.adapter, error)


def _issue(field: str, adapter: str, error: RemoteMisdefined) -> FieldIssue:
    if not isinstance(error.__cause__, msgspec.DecodeError):
        return FieldIssue(field, str(error))
    found = _PLACE.match(str(error.__cause__))
    assert found is not None, "the pattern matches any text"
    text, within = found.groups()
    if unknown := _UNKNOWN.fullmatch(text):
        return _unknown_field(f"{field}{within or ''}", unknown[1], adapter)
    if missing := _MISSING.fullmatch(text):
        return FieldIssue(f"{field}.{missing[1]}", f"is required by the adapter {adapter}")
    return FieldIssue(f"{field}{within or ''}", text[:1].lower() + text[1:])


def _unknown_field(field: str, name: str, adapter: str) -> FieldIssue:
    return FieldIssue(f"{field}.{name}", f"is not a field of the adapter {adapter}")


ARTIFACT_NAME: Final = "remote-result"
_OK: Final = 200


class GatewayResultStore:
    """Stores the results of the gateway's remote targets.

    They are stored as an upstream's answer is, so that they are shown and repeated in the same way.
    """

    def fails_for_good(self, of: ResultOf) -> bool:
        """True unless the endpoint asks for retries: a retry is new work, which may cost money."""
        return not of.note.get(RETRY_FAILED)

    def blob_key(self, of: ResultOf) -> str | None:  # noqa: ARG002 - each upload has its own
        return None

    async def keep(self, of: ResultOf, result: RemoteResult, blobs: BlobContainer) -> StoredOutput:
        media_type = storable_type(result.media_type)
        headers = [("content-type", media_type)]
        pieces = aiter(result)
        beginning: list[bytes] = []
        if is_text(headers):
            beginning, is_whole = await _beginning(pieces)
            if is_whole:
                answer = inline_answer(_OK, headers, b"".join(beginning))
                return StoredOutput(encode_answer(answer))
        key = artifact_key(of.deployment, of.job)
        # A stream that breaks off leaves no visible blob.
        stored = await blobs.put(
            key,
            _chained(beginning, pieces),
            media_type=media_type,
            file_name=with_extension(ARTIFACT_NAME, media_type),
        )
        answer = UpstreamAnswer(_OK, headers, artifact=ARTIFACT_NAME, size=stored.size)
        artifact = StoredArtifact(ARTIFACT_NAME, key, media_type, stored.size, stored.sha256)
        return StoredOutput(encode_answer(answer), artifact)


async def _beginning(pieces: AsyncIterator[bytes]) -> tuple[list[bytes], bool]:
    """The first pieces, up to the size of an inline result, and whether they are all."""
    beginning: list[bytes] = []
    size = 0
    async for piece in pieces:
        beginning.append(piece)
        size += len(piece)
        if size > ANSWER_INLINE_BYTES_MAX:
            return beginning, False
    return beginning, True


async def _chained(beginning: list[bytes], rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    while beginning:
        yield beginning.pop(0)
    async for piece in rest:
        yield piece
