"""Names domains by a language model, where one is configured, and completes the result.

The model is shown paths and identifiers, never source text. It names what the clustering found and
changes nothing of it; if it cannot be reached, or says what makes no sense, the names by path and
words stay.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import httpx2
import msgspec

from coatcheck.codegraph.domain_document import DomainEntry
from coatcheck.egress.authorities import trusted_authorities
from coatcheck.settings import Settings
from coatcheck.surfaces.graphs.analysis import DOMAINS, REST

_log = logging.getLogger(__name__)

RESULT: Final = "result.json"

_NAMED_MAX: Final = 60
"""Domains that are shown to the model, the largest first."""
_ANSWER_SECONDS_MAX: Final = 120.0
_ANSWER_BYTES_MAX: Final = 1024 * 1024
_NAME_CHARACTERS_MAX: Final = 80
_DESCRIPTION_CHARACTERS_MAX: Final = 500

_TASK: Final = (
    "You name the domains of a code base. You are given groups of files that belong together, as "
    "JSON: for each its id, folder, frequent words and some paths. Answer with JSON only: "
    '{"domains": [{"id": ..., "name": ..., "description": ...}]}, one entry for each id. A name '
    "has two to four words and says what the part is for; a description is one sentence."
)


class _Named(msgspec.Struct):
    id: str
    name: str
    description: str = ""


class _Answer(msgspec.Struct):
    domains: list[_Named]


class _Message(msgspec.Struct):
    content: str


class _Choice(msgspec.Struct):
    message: _Message


class _Completion(msgspec.Struct):
    choices: list[_Choice]


_decode_domains: Final = msgspec.json.Decoder(list[DomainEntry]).decode


async def complete(settings: Settings, folder: Path) -> Path:
    """The whole result as a file in ``folder``, of what the analysis wrote there."""
    if not (folder / DOMAINS).exists():
        return folder / REST
    domains = _decode_domains(await asyncio.to_thread((folder / DOMAINS).read_bytes))
    if settings.graphs_llm_url and domains:
        await _name(settings, domains)
    for domain in domains:
        domain.sample_paths = []
    await asyncio.to_thread(_join, folder, msgspec.json.encode(domains))
    return folder / RESULT


def _join(folder: Path, domains: bytes) -> None:
    with (folder / REST).open("rb") as rest, (folder / RESULT).open("xb") as result:
        result.write(b'{"domains":' + domains + b",")
        rest.seek(1)  # past its opening brace
        shutil.copyfileobj(rest, result, 1024 * 1024)


async def _name(settings: Settings, domains: Sequence[DomainEntry]) -> None:
    by_id = {domain.id: domain for domain in domains[:_NAMED_MAX]}
    try:
        async with asyncio.timeout(_ANSWER_SECONDS_MAX):
            named = await _ask(settings, list(by_id.values()))
    except (httpx2.HTTPError, msgspec.MsgspecError, ValueError, TimeoutError) as error:
        # Its text may quote what it was sent.
        _log.warning("domains keep their plain names: %s", type(error).__name__)
        return
    names = {domain.name for domain in domains}
    for each in named:
        name = _line(each.name, _NAME_CHARACTERS_MAX)
        domain = by_id.get(each.id)
        if domain is None or not name or name in names - {domain.name}:
            continue
        names = names - {domain.name} | {name}
        domain.name = name
        domain.description = (
            _line(each.description, _DESCRIPTION_CHARACTERS_MAX) or domain.description
        )
        domain.named_by = "llm"


def _line(said: str, characters_max: int) -> str:
    """What was said, as one line of at most so many characters; nothing if it is no text."""
    line = " ".join(said.split())
    return line[:characters_max].rstrip() if line.isprintable() else ""


async def _ask(settings: Settings, domains: Sequence[DomainEntry]) -> list[_Named]:
    shown: list[dict[str, Any]] = [
        {
            "id": domain.id,
            "folder": domain.path,
            "words": domain.keywords,
            "paths": domain.sample_paths,
        }
        for domain in domains
    ]
    headers = {"authorization": f"Bearer {settings.graphs_llm_key}"}
    async with (
        httpx2.AsyncClient(
            verify=trusted_authorities(trust_env=False),
            trust_env=False,
            timeout=_ANSWER_SECONDS_MAX,
        ) as client,
        client.stream(
            "POST",
            f"{settings.graphs_llm_url}/chat/completions",
            headers=headers if settings.graphs_llm_key else None,
            json={
                "model": settings.graphs_llm_model,
                "temperature": 0,
                "response_format": {"type": "json_object"},
                "messages": [
                    {"role": "system", "content": _TASK},
                    {"role": "user", "content": msgspec.json.encode(shown).decode()},
                ],
            },
        ) as answer,
    ):
        answer.raise_for_status()
        completion = msgspec.json.decode(await _body_of(answer), type=_Completion)
    if not completion.choices:
        raise ValueError("no choices")
    return msgspec.json.decode(completion.choices[0].message.content, type=_Answer).domains


async def _body_of(answer: httpx2.Response) -> bytes:
    body = bytearray()
    async for piece in answer.aiter_bytes():
        body += piece
        if len(body) > _ANSWER_BYTES_MAX:
            raise ValueError("an answer without end")
    return bytes(body)
