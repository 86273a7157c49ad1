"""The Modal adapter: a deployed function, spawned and polled with Modal's own client.

The package ``modal`` is optional, and imported when the first such target is opened. Modal assigns
the ids and supports no tokens. Its client unpickles what a function returns or raises, which can
run any code here: so only the operator may choose the functions (``registry.py``).

``FunctionCall.get`` raises what the function raised, so an error of the function and one of the
connection can look the same: a TimeoutError may mean "not yet", or be how the function ended. If it
could be either, the state in the call graph decides.
"""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from types import ModuleType
from typing import Any, Final

import msgspec

from coatcheck.encoding import encode
from coatcheck.remotes.caller import RemoteTimeouts, decoded, of_each, shown, timed_out
from coatcheck.remotes.files import BINARY, Files, held, result_missing
from coatcheck.remotes.payloads import Marks, OutputChoice, check_id, marked, result_of
from coatcheck.remotes.protocol import (
    Reattach,
    RemoteCompleted,
    RemoteError,
    RemoteFailed,
    RemoteFailure,
    RemoteFaulty,
    RemoteMisdefined,
    RemoteRefused,
    RemoteResult,
    RemoteRunning,
    RemoteStatus,
    RemoteUnknown,
    RemoteUnreachable,
    SpawnRequest,
)

_REFUSALS: Final = (
    "AlreadyExistsError",
    "AuthError",
    "InvalidError",
    "NotFoundError",
    "PermissionDeniedError",
    "RequestSizeError",
    "SerializationError",
    "VersionError",
)
_ENDINGS: Final = ("RemoteError", "ExecutionError", "DeserializationError", "InternalFailure")
"""Modal's errors for calls that failed other than by what the function raised."""
_AWAY: Final = ("ConnectionError", "ClientClosed")
_TRANSPORTS: Final = frozenset({"aiohttp", "grpclib", "ssl", "synchronicity"})
"""Packages whose errors come from the connection, never on purpose from the function."""
_LOGIN_SECONDS_MAX: Final = 15.0
"""Modal's client itself retries for long."""
_PENDING: Final = "PENDING"
_SUCCESS: Final = "SUCCESS"


def load_modal() -> ModuleType:
    """Import Modal's client. Raises RemoteMisdefined if it is not installed."""
    try:
        modal = importlib.import_module("modal")
        importlib.import_module("modal.exception")
    except ImportError as error:
        raise RemoteMisdefined(
            "Targets with the adapter `modal` need the Python package `modal`, which is not "
            "installed where this process runs: install it there with `pip install modal`."
        ) from error
    return modal


class ModalRemote:
    """One deployed function. ``credentials`` are a token's id and secret; without them Modal's
    client uses its configuration file or the environment."""

    reattach = Reattach.NONE

    def __init__(
        self,
        modal: ModuleType,
        files: Files,
        *,
        app: str,
        function: str,
        environment: str | None,
        credentials: tuple[str, str] | None,
        marks: Marks,
        output: OutputChoice,
        timeouts: RemoteTimeouts,
    ) -> None:
        self._modal = modal
        self._errors: Any = modal.exception
        self._files = files
        self._app = app
        self._function = function
        self._environment = environment
        self._credentials = credentials
        self._marks = marks
        self._output = output
        self._timeouts = timeouts
        self._client: Any = None

    async def spawn(self, request: SpawnRequest) -> str:
        arguments = decoded(bytes(marked(request.body, self._marks.of(request))), object)
        async with self._explained("spawn", request):
            function = self._modal.Function.from_name(
                self._app,
                self._function,
                environment_name=self._environment,
                client=await self._connected(),
            )
            if isinstance(arguments, dict):
                call = await function.spawn.aio(**arguments)
            else:
                call = await function.spawn.aio(arguments)
        return check_id(str(call.object_id))

    async def find(self, token: str) -> str | None:  # noqa: ARG002 - Modal knows no tokens
        return None

    async def status(self, ids: Sequence[str]) -> Mapping[str, RemoteStatus]:
        return await of_each(ids, self._status)

    async def result(self, remote_id: str) -> RemoteResult:
        async with self._explained("get"):
            call = await self._call(remote_id)
            try:
                value = await call.get.aio(timeout=0)
            except (self._errors.OutputExpiredError, self._errors.NotFoundError):
                raise result_missing() from None
            except (self._errors.InputCancellation, TimeoutError):
                raise _not_completed() from None
        match value:
            case bytes() | bytearray() | memoryview():
                return held(bytes(value), self._output.media_type or BINARY)
            case _:
                return await result_of(_as_json(value), self._output, self._files, {})

    async def cancel(self, remote_id: str) -> None:
        async with self._explained("cancel"):
            call = await self._call(remote_id)
            try:
                await call.cancel.aio()
            except self._errors.NotFoundError:
                return

    async def _status(self, remote_id: str) -> RemoteStatus:
        async with self._explained("get"):
            return await self._outcome(await self._call(remote_id))

    async def _outcome(self, call: Any) -> RemoteStatus:
        """The state of a call, from what ``get`` raises, or from its graph if that is ambiguous."""
        errors = self._errors
        try:
            await call.get.aio(timeout=0)
        except errors.InputCancellation:  # not an Exception: it would end the task
            return RemoteFailed(RemoteFailure.CANCELLED, "The call was cancelled at Modal.")
        except (errors.OutputExpiredError, errors.NotFoundError):
            return RemoteUnknown()
        except errors.FunctionTimeoutError:
            return RemoteFailed(RemoteFailure.TIMED_OUT, "The function timed out at Modal.")
        except self._named(_ENDINGS) as error:
            return self._failed(error)
        except SystemExit as error:  # raised by the function: it must not end this process
            return self._failed(error)
        except errors.Error:
            raise  # Modal's own: the connection, the credentials, the service
        except Exception as error:  # whatever the function raised
            if not _is_ambiguous(error) or await self._has_ended(call):
                return self._failed(error)
            if isinstance(error, TimeoutError):
                return RemoteRunning()
            raise
        return RemoteCompleted()

    async def _has_ended(self, call: Any) -> bool:
        """Whether Modal says that the call ended without success."""
        for entry in await call.get_call_graph.aio():
            if getattr(entry, "function_call_id", None) == call.object_id:
                name = getattr(entry.status, "name", _PENDING)
                return name not in (_PENDING, _SUCCESS)
        return False

    def _failed(self, error: BaseException) -> RemoteFailed:
        text = str(error)
        reason = f"{type(error).__name__}: {text}" if text else type(error).__name__
        return RemoteFailed(RemoteFailure.FAILED, shown(reason, self._credentials or ()))

    async def _call(self, remote_id: str) -> Any:
        client = await self._connected()
        return await self._modal.FunctionCall.from_id.aio(remote_id, client=client)

    async def _connected(self) -> Any:
        """A client with these credentials, or with those that Modal's client finds itself."""
        if self._client is None:
            client = self._modal.Client
            seconds = min(_LOGIN_SECONDS_MAX, self._timeouts.call_seconds / 2)
            try:
                async with asyncio.timeout(seconds):
                    if self._credentials is None:
                        self._client = await client.from_env.aio()
                    else:
                        self._client = await client.from_credentials.aio(*self._credentials)
            except TimeoutError as error:
                raise RemoteUnreachable("Cannot connect to Modal.") from error
        return self._client

    @asynccontextmanager
    async def _explained(
        self, what: str, request: SpawnRequest | None = None
    ) -> AsyncIterator[None]:
        """Apply the timeout, and convert Modal's errors to ours."""
        hidden = [*(self._credentials or ())]
        if request is not None and request.callback_url is not None:
            hidden.append(request.callback_url)
        method = "GET" if what == "get" else "POST"
        try:
            async with asyncio.timeout(self._timeouts.call_seconds):
                try:
                    yield
                except RemoteError:
                    raise
                except TimeoutError as error:  # Modal's; ours is raised after the block
                    raise RemoteFaulty(
                        "Modal took too long to answer.", code=RemoteFailure.HANGS
                    ) from error
                except Exception as error:  # noqa: BLE001 - a function may raise anything
                    # Without its cause, whose text was not searched for secrets.
                    raise self._meaning(error, hidden, method) from None
        except TimeoutError as error:
            raise timed_out(self._timeouts.call_seconds, method) from error

    def _meaning(self, error: Exception, hidden: Sequence[str], method: str) -> RemoteError:
        text = shown(f"Modal: {type(error).__name__}: {error}", hidden)
        if isinstance(error, self._named(_REFUSALS)):
            return RemoteRefused(text)
        if isinstance(error, self._named(_AWAY)):
            return RemoteUnreachable("Cannot connect to Modal.")
        perhaps_done = method != "GET"
        if isinstance(error, OSError):
            return RemoteUnreachable("Cannot connect to Modal.", perhaps_done=perhaps_done)
        return RemoteFaulty(text, perhaps_done=perhaps_done)

    def _named(self, names: Sequence[str]) -> tuple[type[Exception], ...]:
        """Modal's error classes with these names, as far as this version has them."""
        found = (getattr(self._errors, name, None) for name in names)
        return tuple(kind for kind in found if isinstance(kind, type))


def _is_ambiguous(error: Exception) -> bool:
    """Whether both a function and the connection may raise this."""
    package = type(error).__module__.partition(".")[0]
    return isinstance(error, OSError) or package in _TRANSPORTS


def _as_json(value: Any) -> Any:
    """The function's return value as JSON types."""
    try:
        return msgspec.json.decode(encode(value))
    except (TypeError, ValueError, RecursionError) as error:
        raise RemoteRefused(
            f"The function returned {type(value).__name__}, which cannot be encoded as JSON.",
            code=RemoteFailure.RESULT_UNREADABLE,
        ) from error


def _not_completed() -> RemoteRefused:
    return RemoteRefused("The call has no result.", code=RemoteFailure.NOT_COMPLETED)
