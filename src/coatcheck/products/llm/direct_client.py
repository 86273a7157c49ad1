"""Calls targets without a job: lists of models, loaded models, embeddings.

Each call opens its own connection. These calls are rare compared with chats, so a pool would not
pay. Targets belong to the operator, so no egress guard checks them. Redirects and the environment's
proxies are ignored, and every answer has a bound.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final, NamedTuple

import httpx2
import msgspec

from coatcheck.domain.errors import InvalidParameter, JobSignal, TargetUnreachable
from coatcheck.products.llm import outcomes
from coatcheck.products.llm.model import model_name
from coatcheck.settings.targets import LlmTarget
from coatcheck.tls import trusted_authorities
from coatcheck.version import __version__

CONNECT_SECONDS_MAX: Final = 3.0
LIST_SECONDS_MAX: Final = 5.0
"""For a list of models. A target that takes longer counts as unreachable."""
POST_SECONDS_MAX: Final = 300.0
"""For embeddings, whose model may have to be loaded first."""
ANSWER_BYTES_MAX: Final = 32 * 1024 * 1024
LISTED_SECONDS: Final = 5.0
"""How long the lists of models are cached."""
TAGS: Final = "/api/tags"


class DirectAnswer(NamedTuple):
    """The whole answer of a target."""

    target: LlmTarget
    body: bytes


class NoAnswer(Exception):
    """No target gave a usable answer. ``signal`` says what the last one did instead."""

    def __init__(self, signal: JobSignal) -> None:
        super().__init__(str(signal))
        self.signal = signal


_decode_object: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


class _Models(msgspec.Struct):
    models: list[dict[str, Any]] | None = None


@dataclass(frozen=True, slots=True)
class _TargetModels:
    """The models of each target that answered."""

    names: Mapping[str, frozenset[str]]
    until: float


class DirectClient:
    """Calls the targets from the server."""

    def __init__(self, targets: Sequence[LlmTarget]) -> None:
        self._targets = targets
        self._listed: _TargetModels | None = None

    async def models(self, path: str) -> list[dict[str, Any]]:
        """The models that the targets list at ``path``, unchanged. Of two with one name, the first
        target's. Raises NoAnswer if no target answers."""
        found: dict[str, dict[str, Any]] = {}
        for _, models in await self._model_lists(path):
            for model in models:
                found.setdefault(_name(model), model)
        return list(found.values())

    async def first(self, path: str) -> DirectAnswer:
        """The answer of the first target that answers. Raises NoAnswer."""
        answers = await self._get_all(path)
        for answer in answers:
            if isinstance(answer, DirectAnswer):
                return answer
        raise NoAnswer(_unreachable(answers))

    async def post(self, path: str, model: str, body: bytes) -> DirectAnswer:
        """POST to a target that has ``model``, or to any if none lists it. Raises NoAnswer."""
        signal: JobSignal = _unreachable()
        for target in await self._targets_with(model):
            try:
                return await self._call(target, "POST", path, POST_SECONDS_MAX, body)
            except NoAnswer as error:
                signal = error.signal
        raise NoAnswer(signal)

    async def _targets_with(self, model: str) -> Sequence[LlmTarget]:
        if len(self._targets) == 1:
            return self._targets
        listed = self._listed
        if listed is None or time.monotonic() >= listed.until:
            names = {
                target.name: frozenset(canonical_name(_name(each)) for each in models)
                for target, models in await self._model_lists(TAGS)
            }
            listed = self._listed = _TargetModels(names, time.monotonic() + LISTED_SECONDS)
        able = [each for each in self._targets if model in listed.names.get(each.name, ())]
        return able or [each for each in self._targets if each.name in listed.names]

    async def _model_lists(self, path: str) -> list[tuple[LlmTarget, list[dict[str, Any]]]]:
        """The models of each target that answered. Raises NoAnswer if none did."""
        lists = []
        answers = await self._get_all(path)
        for answer in answers:
            if isinstance(answer, DirectAnswer):
                try:
                    models = msgspec.json.decode(answer.body, type=_Models).models
                except (msgspec.MsgspecError, RecursionError):
                    continue
                lists.append((answer.target, models or []))
        if not lists:
            raise NoAnswer(_unreachable(answers))
        return lists

    async def _get_all(self, path: str) -> list[DirectAnswer | BaseException]:
        """Each target's answer to a GET, in order; NoAnswer for those that did not answer."""
        answers = await asyncio.gather(
            *(self._call(each, "GET", path, LIST_SECONDS_MAX) for each in self._targets),
            return_exceptions=True,
        )
        for each in answers:
            if isinstance(each, BaseException) and not isinstance(each, NoAnswer):
                raise each
        return answers

    async def _call(
        self, target: LlmTarget, method: str, path: str, seconds_max: float, body: bytes = b""
    ) -> DirectAnswer:
        """One target's answer, if it is 200 and a JSON object. Raises NoAnswer."""
        limit = asyncio.timeout(seconds_max)
        try:
            async with (
                limit,
                self._client(target) as client,
                client.stream(method, target.url + path, content=body) as response,
            ):
                read = await _read(response)
        except TimeoutError:
            if not limit.expired():
                raise
            raise NoAnswer(outcomes.silent(target.name, seconds_max)) from None
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise NoAnswer(outcomes.no_answer(target.name, error)) from error
        if response.status_code != HTTPStatus.OK:
            text = outcomes.error_text(read)
            raise NoAnswer(
                outcomes.refusal(target.name, response.status_code, response.headers, text)
            )
        if not _is_object(read):
            raise NoAnswer(outcomes.invalid_answer(target.name))
        return DirectAnswer(target, read)

    @asynccontextmanager
    async def _client(self, target: LlmTarget) -> AsyncIterator[httpx2.AsyncClient]:
        headers = {"user-agent": f"coatcheck/{__version__}", "accept-encoding": "identity"}
        if target.token:
            headers["authorization"] = f"Bearer {target.token}"
        async with httpx2.AsyncClient(
            timeout=httpx2.Timeout(None, connect=CONNECT_SECONDS_MAX),
            headers=headers | {"content-type": "application/json"},
            verify=trusted_authorities(trust_env=False),
            trust_env=False,
            follow_redirects=False,
        ) as client:
            yield client


async def _read(response: httpx2.Response) -> bytes:
    read = bytearray()
    async for piece in response.aiter_raw():
        read += piece
        if len(read) > ANSWER_BYTES_MAX:
            raise NoAnswer(outcomes.too_large(ANSWER_BYTES_MAX))
    return bytes(read)


def _is_object(body: bytes) -> bool:
    try:
        _decode_object(body)
    except (msgspec.MsgspecError, RecursionError):
        return False
    return True


def _unreachable(answers: Sequence[DirectAnswer | BaseException] = ()) -> JobSignal:
    """No target answered. The text has the reason of each."""
    reasons = [str(each.signal) for each in answers if isinstance(each, NoAnswer)]
    return TargetUnreachable(" ".join(["No target can be reached.", *reasons]))


def _name(model: Mapping[str, Any]) -> str:
    return str(model.get("name") or model.get("model") or "")


def canonical_name(name: str) -> str:
    """The canonical name of a model from a target or a path. An invalid name is unchanged."""
    try:
        return model_name(name)
    except InvalidParameter:
        return name
