"""Names domains with a language model, if one is configured, and completes the result.

The model sees paths and identifiers, never source text. It names the domains that the clustering
found and changes nothing else. Transient failures are retried. If the model stays unreachable, or
its answer is unusable, the domains keep their names from paths and words, and the result says why.
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
from coatcheck.egress.urls import parse_retry_after
from coatcheck.products.graphs.analysis import DOMAINS, REST
from coatcheck.products.graphs.schemas import DomainNaming
from coatcheck.settings import Settings
from coatcheck.tls import trusted_authorities
from coatcheck_codegraph.domain_document import DomainEntry, DomainMarks

_log = logging.getLogger(__name__)

RESULT: Final = "result.json"
_COPIED_BYTES: Final = 1024 * 1024

NAMING_ATTEMPTS: Final = 3
NAMING_BACKOFF: Final = Backoff(base_seconds=1.0, cap_seconds=30.0, jitter=0.5)
"""The delay before a retry, unless the model's ``Retry-After`` gives one."""
_AFTER_SECONDS_MAX: Final = 30.0
_TRANSIENT_STATUSES: Final = frozenset({HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS})
"""Statuses that are retried, besides 5xx."""
_NAMED_MAX: Final = 60
"""The number of domains that the model sees, largest first."""
ANSWER_SECONDS_MAX: Final = 120.0
ANSWER_BYTES_MAX: Final = 1024 * 1024
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


class Failure(NamedTuple):
    """Why the model did not name domains. ``what`` completes the sentence "the model ...".

    ``after`` is the delay before a retry that the model asked for, if any.
    """

    reason: str
    what: str
    is_transient: bool = True
    after: float | None = None


_NOT_CONFIGURED: Final = DomainNaming(
    "clustering", reason="not_configured", message="No model for naming domains is configured."
)
_NO_DOMAINS: Final = DomainNaming(
    "clustering", reason="no_domains", message="There are no domains to name."
)
_decode_domains: Final = msgspec.json.Decoder(list[DomainEntry]).decode


async def complete(settings: Settings, folder: Path) -> Path:
    """Name the domains and write the whole result to a file in ``folder``; returns its path."""
    if not (folder / DOMAINS).exists():
        return folder / REST
    domains = _decode_domains(await asyncio.to_thread((folder / DOMAINS).read_bytes))
    if not settings.graphs_llm_url:
        naming = _NOT_CONFIGURED
    elif not domains:
        naming = _NO_DOMAINS
    else:
        naming = await _name(settings, domains)
    for domain in domains:
        domain.sample_paths = []
        domain.description_summary = domain.description
    await asyncio.to_thread(_join, folder, naming, domains)
    return folder / RESULT


def _join(folder: Path, naming: DomainNaming, domains: Sequence[DomainEntry]) -> None:
    """Write the domains, and then the rest with its placeholders replaced by their names."""
    marks = DomainMarks(domains)
    head = {"domainNaming": naming, "domains": domains}
    with (folder / REST).open("rb") as rest, (folder / RESULT).open("xb") as result:
        result.write(msgspec.json.encode(head)[:-1] + b",")
        rest.seek(1)  # past its opening brace
        while piece := rest.read(_COPIED_BYTES):
            result.write(marks.feed(piece))
        result.write(marks.finish())


async def _name(settings: Settings, domains: Sequence[DomainEntry]) -> DomainNaming:
    """Ask the model to name the domains, with retries; returns who named them in the end."""
    attempt = 1
    while failure := await _try_naming(settings, domains):
        if not failure.is_transient or attempt == NAMING_ATTEMPTS:
            return _fall_back(failure, attempt)
        delay = NAMING_BACKOFF.delay(attempt - 1, random.random())
        await asyncio.sleep(delay if failure.after is None else failure.after)
        attempt += 1
    return DomainNaming("llm", attempt)


async def _try_naming(settings: Settings, domains: Sequence[DomainEntry]) -> Failure | None:
    """Ask the model once, and rename the domains that it names. None if that succeeded."""
    shown = domains[:_NAMED_MAX]
    try:
        async with asyncio.timeout(ANSWER_SECONDS_MAX):
            named = await _request_names(settings, shown)
    except (httpx2.HTTPError, msgspec.MsgspecError, ValueError, TimeoutError) as error:
        return failure_of(error)
    if not _rename(domains, shown, named):
        return Failure("answer_unusable", "named none of them", is_transient=False)
    return None


def _fall_back(failure: Failure, attempts: int) -> DomainNaming:
    # Never the text of an error: it may quote what was sent.
    _log.warning(
        "domains keep their plain names: the model %s, asked %d times", failure.what, attempts
    )
    message = f"The model that names domains {failure.what}; they have their plain names."
    return DomainNaming("clustering", attempts, failure.reason, message)


def failure_of(error: Exception) -> Failure:
    match error:
        case httpx2.HTTPStatusError():
            status = error.response.status_code
            what = f"answered {status}"
            if status < HTTPStatus.INTERNAL_SERVER_ERROR and status not in _TRANSIENT_STATUSES:
                return Failure("model_refused", what, is_transient=False)
            headers = error.response.headers
            after = parse_retry_after(headers, datetime.now(UTC), _AFTER_SECONDS_MAX)
            return Failure("model_failed", what, after=after)
        case TimeoutError() | httpx2.TimeoutException():
            return Failure("model_timed_out", "did not answer in time")
        case httpx2.HTTPError():
            return Failure("model_unreachable", "could not be reached, or broke off")
        case _:
            return Failure("answer_invalid", "gave an answer in the wrong format")


def _rename(
    domains: Sequence[DomainEntry], shown: Sequence[DomainEntry], named: Sequence[_NamedDomain]
) -> bool:
    """Give the shown domains their new names, if these are usable. Returns whether any was."""
    by_id = {domain.id: domain for domain in shown}
    names = {domain.name for domain in domains}
    names |= {part.name for domain in domains for part in domain.subdomains or ()}
    has_named = False
    for each in named:
        name = _one_line(each.name, _NAME_CHARACTERS_MAX)
        domain = by_id.get(each.id)
        if domain is None or not name or name in names - {domain.name}:
            continue
        names = names - {domain.name} | {name}
        domain.name = name
        domain.description = (
            _one_line(each.description, _DESCRIPTION_CHARACTERS_MAX) or domain.description
        )
        domain.named_by = "llm"
        has_named = True
    return has_named


def _one_line(text: str, characters_max: int) -> str:
    """The text as one line of limited length; empty if it is not printable."""
    line = " ".join(text.split())
    return line[:characters_max].rstrip() if line.isprintable() else ""


async def _request_names(settings: Settings, domains: Sequence[DomainEntry]) -> list[_NamedDomain]:
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
            timeout=ANSWER_SECONDS_MAX,
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
        if len(body) > ANSWER_BYTES_MAX:
            raise ValueError("the answer is too long")
    return bytes(body)
