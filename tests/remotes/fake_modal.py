"""A module that stands for Modal's client: the names, the ``.aio`` and the errors that it has.

Files that functions name are served over a real socket, as of the other services.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import Enum
from types import ModuleType
from typing import Any

from tests.remotes.fake_service import TOKEN_ID, FakeService, Work
from tests.remotes.faults import Cut, Fault, Garbage, Hang, Status


class InputStatus(Enum):
    PENDING = 0
    SUCCESS = 1
    FAILURE = 2


@dataclass
class InputInfo:
    function_call_id: str
    status: InputStatus


class StreamTerminatedError(Exception):
    """As grpclib's, of a connection that was lost."""

    __module__ = "grpclib.exceptions"


@dataclass
class Method:
    """What Modal makes of a method: ``.aio`` is the one for async code."""

    aio: Callable[..., Awaitable[Any]]


class FakeModal(FakeService):
    by_operator = True

    def __init__(self) -> None:
        super().__init__()
        self.is_away = False
        self.raised: dict[str, BaseException] = {}
        """What a function raised, by its call."""
        self.returned: dict[str, Any] = {}
        self.logins: list[tuple[str, str]] = []
        self.module = self._module()

    def definition(self) -> dict[str, Any]:
        return {
            "kind": "remote",
            "adapter": "modal",
            "app": "speech",
            "function": "speak",
            "environment": "main",
            "token_id_secret": "TOKEN_ID",
            "token_secret_secret": "SERVICE_KEY",
            "marks": {"callback_url": "callback"},
        }

    def unreachable_definition(self, dead_port: int) -> dict[str, Any]:
        self.is_away = True
        return self.definition()

    def complete(self, remote_id: str, content: bytes, media_type: str = "audio/wav") -> None:
        super().complete(remote_id, content, media_type)
        self.returned[remote_id] = {"url": self.file_url(self.works[remote_id])}

    def complete_streaming(self, remote_id: str, size: int) -> None:
        super().complete_streaming(remote_id, size)
        self.returned[remote_id] = self.file_url(self.works[remote_id])

    def fail(self, remote_id: str, error: str) -> None:
        super().fail(remote_id, error)
        self.raised[remote_id] = ValueError(error)

    def _module(self) -> ModuleType:
        module, errors = ModuleType("modal"), _errors()
        module.exception = errors  # type: ignore[attr-defined]
        fake = self

        class Client:
            @staticmethod
            async def _from_credentials(token_id: str, token_secret: str) -> str:
                fake.logins.append((token_id, token_secret))
                return await fake.client(errors)

            @staticmethod
            async def _from_env() -> str:
                fake.logins.append(("from", "env"))
                return await fake.client(errors)

            from_credentials = Method(_from_credentials)
            from_env = Method(_from_env)

        class Function:
            @staticmethod
            def from_name(
                app: str, name: str, *, environment_name: str | None = None, client: Any = None
            ) -> Any:
                assert (app, name, environment_name, client) == (
                    "speech",
                    "speak",
                    "main",
                    "a client",
                )

                async def spawn(*args: Any, **kwargs: Any) -> Any:
                    await fake.go(errors, kwargs)
                    callback = kwargs.pop("callback", None)
                    work = Work(f"fc-{len(fake.works)}A", kwargs or args[0], callback)
                    fake.works[work.id] = work
                    if fake.garbled:
                        return FunctionCall("not an id\n")
                    return FunctionCall(work.id)

                return type("Deployed", (), {"spawn": Method(spawn)})

        class FunctionCall:
            def __init__(self, object_id: str) -> None:
                self.object_id = object_id
                self.get = Method(self._get)
                self.cancel = Method(self._cancel)
                self.get_call_graph = Method(self._graph)

            @staticmethod
            async def _from_id(function_call_id: str, client: Any = None) -> FunctionCall:
                assert client == "a client"
                return FunctionCall(function_call_id)

            from_id = Method(_from_id)

            async def _get(self, timeout: float | None = None) -> Any:
                assert timeout == 0
                await fake.go(errors, {})
                work = fake.works.get(self.object_id)
                if work is None:
                    raise errors.NotFoundError("no such call")
                if work.state == "cancelled":
                    raise errors.InputCancellation("Input was cancelled by user")
                if self.object_id in fake.raised:
                    raise fake.raised[self.object_id]
                if work.state == "running":
                    raise TimeoutError
                return fake.returned[self.object_id]

            async def _cancel(self) -> None:
                await fake.go(errors, {})
                if self.object_id not in fake.works:
                    raise errors.NotFoundError("no such call")
                fake.cancelled.append(self.object_id)
                fake.works[self.object_id].state = "cancelled"

            async def _graph(self) -> list[InputInfo]:
                await fake.go(errors, {})
                ended = self.object_id in fake.raised
                status = InputStatus.FAILURE if ended else InputStatus.PENDING
                return [InputInfo(self.object_id, status)]

        module.Client = Client  # type: ignore[attr-defined]
        module.Function = Function  # type: ignore[attr-defined]
        module.FunctionCall = FunctionCall  # type: ignore[attr-defined]
        return module

    garbled = False
    hangs_at_login = False

    async def client(self, errors: Any) -> str:
        if self.hangs_at_login:
            await asyncio.Event().wait()
        if self.is_away:
            raise errors.ConnectionError("Could not connect to the Modal server.")
        return "a client"

    async def go(self, errors: Any, kwargs: dict[str, Any]) -> None:
        if self.is_away:
            raise errors.ConnectionError("Could not connect to the Modal server.")
        if self.faults:
            await self._raise(self.faults.pop(0), errors, kwargs)

    async def _raise(self, fault: Fault, errors: Any, kwargs: dict[str, Any]) -> None:
        match fault:
            case Hang():
                await asyncio.Event().wait()
            case Cut():
                raise StreamTerminatedError("Connection lost")
            case Garbage():
                self.garbled = True
            case Status(code):
                kind = errors.AuthError if code < 500 else errors.InternalError
                text = f"no, {TOKEN_ID} {self.secret} with {kwargs}\n\x00" + "z" * 5_000
                raise kind(text)


def _errors() -> Any:
    errors: Any = ModuleType("modal.exception")
    errors.Error = type("Error", (Exception,), {})
    for name in (
        "RemoteError",
        "TimeoutError",
        "AuthError",
        "ConnectionError",
        "InvalidError",
        "NotFoundError",
        "InternalError",
        "InternalFailure",
        "ExecutionError",
        "DeserializationError",
    ):
        setattr(errors, name, type(name, (errors.Error,), {}))
    for name in ("FunctionTimeoutError", "OutputExpiredError"):
        setattr(errors, name, type(name, (errors.TimeoutError,), {}))
    errors.InputCancellation = type("InputCancellation", (BaseException,), {})
    return errors
