"""Names domains by a language model, where one is configured, and completes the result.

The model is shown paths and identifiers, never source text. It names what the clustering found and
changes nothing of it. What may pass is tried again; if the model cannot be reached even so, or says
what makes no sense, the names by path and words stay, and the result says which and why.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Sequence
from datetime import UTC, datetime
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final, NamedTuple

import httpx2
import msgspec

from coatcheck.domain.retry import Backoff
from coatcheck.egress.urls import asked_seconds, trusted_authorities
from coatcheck.products.graphs.analysis import DOMAINS, REST
from coatcheck.products.graphs.schemas import DomainNaming
from coatcheck.settings import Settings
from coatcheck_codegraph.domain_document import DomainEntry, DomainMarks

_log = logging.getLogger(__name__)

RESULT: Final = "result.json"
_COPIED_BYTES: Final = 1024 * 1024

NAMING_ATTEMPTS: Final = 3
NAMING_BACKOFF: Final = Backoff(base_seconds=1.0, cap_seconds=30.0, jitter=0.5)
"""Before a model that failed is asked again, unless it says when it wants to be."""
_AFTER_SECONDS_MAX: Final = 30.0
_MAY_PASS: Final = frozenset({HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS})
"""Besides errors of the server itself."""
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


class _NamedDomain(msgspec.Struct):
    id: str
    name: str
    description: str = ""


class _Answer(msgspec.Struct):
    domains: list[_NamedDomain]


class _NamingMessage(msgspec.Struct):
    content: str


class _NamingChoice(msgspec.Struct):
    message: _NamingMessage


class _Completion(msgspec.Struct):
    choices: list[_NamingChoice]


class _Trouble(NamedTuple):
    """Why a model could not be had. ``after``: when it wants to be asked again, if it says so."""

    reason: str
    what: str
    may_pass: bool = True
    after: float | None = None


_NOT_CONFIGURED: Final = DomainNaming(
    "clustering", reason="not_configured", message="No model that names domains is set."
)
_NO_DOMAINS: Final = DomainNaming(
    "clustering", reason="no_domains", message="There are no domains to name."
)
_decode_domains: Final = msgspec.json.Decoder(list[DomainEntry]).decode


async def complete(settings: Settings, folder: Path) -> Path:
    """The whole result as a file in ``folder``, of what the analysis wrote there."""
    if not (folder / DOMAINS).exists():
        return folder / REST
    domains = _decode_domains(await asyncio.to_thread((folder / DOMAINS).read_bytes))
    if not settings.graphs_llm_url:
        said = _NOT_CONFIGURED
    elif not domains:
        said = _NO_DOMAINS
    else:
        said = await _name(settings, domains)
    for domain in domains:
        domain.sample_paths = []
        domain.description_summary = domain.description
    await asyncio.to_thread(_join, folder, said, domains)
    return folder / RESULT


def _join(folder: Path, said: DomainNaming, domains: Sequence[DomainEntry]) -> None:
    """Write who named the domains and what they are, and then the rest with their names where it
    has marks."""
    marks = DomainMarks(domains)
    head = {"domainNaming": said, "domains": domains}
    with (folder / REST).open("rb") as rest, (folder / RESULT).open("xb") as result:
        result.write(msgspec.json.encode(head)[:-1] + b",")
        rest.seek(1)  # past its opening brace
        while piece := rest.read(_COPIED_BYTES):
            result.write(marks.feed(piece))
        result.write(marks.finish())


async def _name(settings: Settings, domains: Sequence[DomainEntry]) -> DomainNaming:
    """Have the domains named; who did it in the end."""
    attempt = 1
    while trouble := await _trouble_of_naming(settings, domains):
        if not trouble.may_pass or attempt == NAMING_ATTEMPTS:
            return _fallen_back(trouble, attempt)
        delay = NAMING_BACKOFF.delay(attempt - 1, random.random())
        await asyncio.sleep(delay if trouble.after is None else trouble.after)
        attempt += 1
    return DomainNaming("llm", attempt)


async def _trouble_of_naming(settings: Settings, domains: Sequence[DomainEntry]) -> _Trouble | None:
    """Ask the model once, and rename what it names. What kept it from that; None if it is done."""
    shown = domains[:_NAMED_MAX]
    try:
        async with asyncio.timeout(_ANSWER_SECONDS_MAX):
            named = await _ask(settings, shown)
    except (httpx2.HTTPError, msgspec.MsgspecError, ValueError, TimeoutError) as error:
        return _trouble(error)
    if not _rename(domains, shown, named):
        return _Trouble("answer_unusable", "named none of them", may_pass=False)
    return None


def _fallen_back(trouble: _Trouble, attempts: int) -> DomainNaming:
    # Never the text of an error: it may quote what was sent.
    _log.warning(
        "domains keep their plain names: the model %s, asked %d times", trouble.what, attempts
    )
    message = f"The model that names domains {trouble.what}; they have their plain names."
    return DomainNaming("clustering", attempts, trouble.reason, message)


def _trouble(error: Exception) -> _Trouble:
    match error:
        case httpx2.HTTPStatusError():
            status = error.response.status_code
            what = f"answered {status}"
            if status < HTTPStatus.INTERNAL_SERVER_ERROR and status not in _MAY_PASS:
                return _Trouble("model_refused", what, may_pass=False)
            headers = error.response.headers
            after = asked_seconds(headers, datetime.now(UTC), _AFTER_SECONDS_MAX)
            return _Trouble("model_failed", what, after=after)
        case TimeoutError() | httpx2.TimeoutException():
            return _Trouble("model_timed_out", "did not answer in time")
        case httpx2.HTTPError():
            return _Trouble("model_unreachable", "could not be reached, or broke off")
        case _:
            return _Trouble("answer_invalid", "answered what is not asked for")


def _rename(
    domains: Sequence[DomainEntry], shown: Sequence[DomainEntry], named: Sequence[_NamedDomain]
) -> bool:
    """Give the domains that were shown their new names, those that fit. Whether any did."""
    by_id = {domain.id: domain for domain in shown}
    names = {domain.name for domain in domains}
    names |= {part.name for domain in domains for part in domain.subdomains or ()}
    has_named = False
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
        has_named = True
    return has_named


def _line(said: str, characters_max: int) -> str:
    """What was said, as one line of at most so many characters; nothing if it is no text."""
    line = " ".join(said.split())
    return line[:characters_max].rstrip() if line.isprintable() else ""


async def _ask(settings: Settings, domains: Sequence[DomainEntry]) -> list[_NamedDomain]:
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
