"""Services and their endpoints, checked when they are declared.

    docs = Service("docs")

    @docs.post("/analyze", lane="standard", timeout=300)
    async def analyze(job: Job, content: str) -> dict:
        ...

Every mistake that can be detected in a declaration is raised by the declaration, with the name of
the function and what is allowed.
"""

from __future__ import annotations

import importlib
import inspect
import math
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Literal, TypedDict, TypeVar, Unpack, cast, get_args

from coatcheck.domain.catalogue import Auth, EndpointSpec, Method, VersionSpec
from coatcheck.domain.errors import SettingsInvalid
from coatcheck.domain.lanes import Lane
from coatcheck.domain.service_definition import (
    SYNC_TIMEOUT_SECONDS,
    SYNC_TIMEOUT_SECONDS_MAX,
    VERSION_MAX,
    endpoint_key,
    engine_name,
    is_path,
    is_reserved,
    is_service_name,
    path_parameters,
    path_shape,
)
from coatcheck.installed import reserved_services
from coatcheck.service.signature import Signature

Handler = TypeVar("Handler", bound=Callable[..., Any])
Kind = Literal["inline", "thread", "isolated"]
"""Where a handler runs: on the worker's event loop, in a thread, or in its own process."""

_DEFAULT_TIMEOUT_SECONDS: Final = 300.0
_SECONDS_MAX: Final = 2**31 - 1
_RETRIES_MAX: Final = 1_000
_MEMORY_MB_MIN: Final = 64
"""The interpreter itself does not start with less."""

_AUTHS: Final[tuple[Auth, ...]] = get_args(Auth)


class EndpointOptions(TypedDict, total=False):
    """The options of an endpoint. All are optional."""

    lane: Lane | str
    """urgent, standard (the default) or bulk, for submissions that name none."""
    timeout: float
    """Seconds that one attempt may run; 300 by default."""
    retries: int | None
    """How often a failed job is retried; None for the lane's default."""
    isolated: bool
    """Run in a new process that has a private temp dir and can be killed."""
    memory_mb: int | None
    """Address space of the isolated process in MiB, including the interpreter's own."""
    cpu_seconds: int | None
    """CPU time of the isolated process, including its start."""
    concurrency: int | None
    """How many of the endpoint's jobs may run at once over all workers."""
    keep_completed: float | None
    """Seconds to keep a completed job; None for the deployment's setting."""
    keep_failed: float | None
    """Seconds to keep a failed or cancelled job; None for the deployment's setting."""
    keep_input: bool
    """Whether a failed or cancelled job keeps its input for that time, so that it can be retried;
    True by default."""
    async_eligible: bool
    """Whether the endpoint may be called asynchronously over HTTP; True by default."""
    auth: Auth
    """Who may call it over HTTP: ``platform`` (the default) for keys and users of the organisation,
    ``service_token`` for the holder of such a token, ``none`` for anyone."""
    sync_timeout: float
    """Seconds that a synchronous call waits for the job before it answers with its URLs; 30 by
    default, at most 60."""
    starts_itself: bool
    """Whether a job shows as ``dispatching`` until its handler calls ``job.started()``. Only for
    async functions that are not isolated."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Endpoint:
    """One function of a service, and the options for its jobs.

    ``name`` is the ``endpoint`` of its jobs, such as ``docs.post__analyze``, or from version 2 on
    ``docs.v2.post__analyze``. ``spec`` is its entry in the catalogue, with the options that callers
    can see. ``decode`` decodes a payload into arguments and raises InvalidInput. ``job_parameter``
    names the parameter that receives the Job, if there is one.
    """

    name: str
    spec: EndpointSpec
    kind: Kind
    memory_mb: int | None
    cpu_seconds: int | None
    starts_itself: bool
    internal: bool
    """Whether its jobs are a product's own: nobody submits them, and no statistics count them."""
    function: Callable[..., Any]
    job_parameter: str | None
    decode: Callable[[bytes], dict[str, Any]]


class Service:
    """A named group of endpoints, declared with ``post``, ``get``, ``put`` and the like.

    Versions are Services with the same name: ``Service("docs", version=2)`` beside
    ``Service("docs")``. ``product`` is the product whose service this is: its name is reserved for
    the product, and its jobs are submitted through the product's API alone.
    """

    __slots__ = ("_endpoints", "internal", "name", "published", "version")

    def __init__(
        self,
        name: str,
        version: int = 1,
        *,
        product: str | None = None,
        _published: bool = False,
        _internal: bool = False,
    ) -> None:
        if not is_service_name(name):
            raise ValueError(
                f"{name!r} is not a valid service name: use a letter, then letters, digits, '-' or"
                " '_', at most 63 in all"
            )
        reserved = reserved_services()
        if product is None and is_reserved(name, reserved):
            kept = ", ".join(map(repr, reserved))
            raise ValueError(
                f"{name!r} is not a valid service name: {kept}, and names that begin with"
                " 'coatcheck', are reserved for Coatcheck itself"
            )
        if product is not None and (
            not is_reserved(name, reserved) or reserved.get(name.lower(), product) != product
        ):
            raise ValueError(
                f"{name!r} is not a service of the product {product!r}: no entry point of"
                " coatcheck.services says so"
            )
        _whole("version", version, at_least=1, at_most=VERSION_MAX)
        self.name = name
        self.version = version
        self.published = _published or product is None
        """Whether the catalogue has it. Most of Coatcheck's own services are behind products."""
        self.internal = _internal
        """Whether its jobs are a product's own work, which nobody submits."""
        self._endpoints: dict[str, Endpoint] = {}

    def __repr__(self) -> str:
        version = "" if self.version == 1 else f" v{self.version}"
        return f"<Service {self.name}{version}: {', '.join(self._endpoints) or 'no endpoints'}>"

    @property
    def spec(self) -> VersionSpec:
        """This version of the service, for the catalogue."""
        return VersionSpec(self.version, tuple(each.spec for each in self._endpoints.values()))

    @property
    def endpoints(self) -> Mapping[str, Endpoint]:
        """The endpoints by key, such as ``post__analyze``, in order of declaration."""
        return MappingProxyType(self._endpoints)

    def post(self, path: str, **options: Unpack[EndpointOptions]) -> Callable[[Handler], Handler]:
        """Declare that the function below answers POST on ``path``. It is returned unchanged."""
        return self._declare("post", path, options)

    def get(self, path: str, **options: Unpack[EndpointOptions]) -> Callable[[Handler], Handler]:
        """Declare that the function below answers GET on ``path``. It is returned unchanged."""
        return self._declare("get", path, options)

    def put(self, path: str, **options: Unpack[EndpointOptions]) -> Callable[[Handler], Handler]:
        """Declare that the function below answers PUT on ``path``. It is returned unchanged."""
        return self._declare("put", path, options)

    def patch(self, path: str, **options: Unpack[EndpointOptions]) -> Callable[[Handler], Handler]:
        """Declare that the function below answers PATCH on ``path``. It is returned unchanged."""
        return self._declare("patch", path, options)

    def delete(self, path: str, **options: Unpack[EndpointOptions]) -> Callable[[Handler], Handler]:
        """Declare that the function below answers DELETE on ``path``. It is returned unchanged."""
        return self._declare("delete", path, options)

    def _declare(
        self, method: str, path: str, options: EndpointOptions
    ) -> Callable[[Handler], Handler]:
        def declare(function: Handler) -> Handler:
            endpoint = _endpoint(
                self.name, self.version, method, path, function, options, internal=self.internal
            )
            self._check_new(endpoint)
            self._endpoints[endpoint.spec.key] = endpoint
            return function

        _check_path(path)
        return declare

    def _check_new(self, endpoint: Endpoint) -> None:
        new = endpoint.spec
        known = self._endpoints.get(new.key)
        if known is not None:
            raise ValueError(
                f"{_call(new)} would get the name {endpoint.name}, which {_call(known.spec)}"
                " already has"
            )
        for spec in self.spec.endpoints:
            if spec.method == new.method and path_shape(spec.path) == path_shape(new.path):
                raise ValueError(f"{_call(new)} would match the same paths as {_call(spec)}")


def _call(spec: EndpointSpec) -> str:
    return f"{spec.method} {spec.path}"


def _endpoint(
    service: str,
    version: int,
    method: str,
    path: str,
    function: Callable[..., Any],
    options: EndpointOptions,
    *,
    internal: bool,
) -> Endpoint:
    unknown = sorted(options.keys() - EndpointOptions.__annotations__.keys())
    if unknown:
        raise TypeError(
            f"an endpoint has no option {', '.join(unknown)}; its options are"
            f" {', '.join(EndpointOptions.__annotations__)}"
        )
    isolated = bool(options.get("isolated", False))
    kind = _kind(function, isolated)
    signature = Signature(function)
    for name in path_parameters(path):
        if name not in signature.names:
            raise ValueError(
                f"{path} has {{{name}}}, but {function.__qualname__} has no such parameter"
            )
    memory_mb = _whole("memory_mb", options.get("memory_mb"), at_least=_MEMORY_MB_MIN)
    cpu_seconds = _whole("cpu_seconds", options.get("cpu_seconds"), at_least=1)
    if not isolated and (memory_mb is not None or cpu_seconds is not None):
        raise ValueError("memory_mb and cpu_seconds need isolated=True")
    starts_itself = bool(options.get("starts_itself", False))
    if starts_itself and kind != "inline":
        raise ValueError("starts_itself needs an async function that is not isolated")
    spec = EndpointSpec(
        service=service,
        version=version,
        key=endpoint_key(method, path),
        method=cast(Method, method.upper()),
        path=path,
        lane=_lane(options.get("lane", Lane.STANDARD)),
        retries=_whole("retries", options.get("retries"), at_least=0, at_most=_RETRIES_MAX),
        timeout_seconds=_seconds("timeout", options.get("timeout", _DEFAULT_TIMEOUT_SECONDS)),
        sync_timeout_seconds=_seconds(
            "sync_timeout",
            options.get("sync_timeout", SYNC_TIMEOUT_SECONDS),
            at_most=SYNC_TIMEOUT_SECONDS_MAX,
        ),
        async_eligible=bool(options.get("async_eligible", True)),
        auth=_auth(options.get("auth", "platform")),
        keep_completed_seconds=_retention("keep_completed", options.get("keep_completed")),
        keep_failed_seconds=_retention("keep_failed", options.get("keep_failed")),
        keep_input=bool(options.get("keep_input", True)),
        concurrency=_whole("concurrency", options.get("concurrency"), at_least=1),
        parameters=signature.kinds,
    )
    return Endpoint(
        name=engine_name(service, version, spec.key),
        spec=spec,
        kind=kind,
        memory_mb=memory_mb,
        cpu_seconds=cpu_seconds,
        starts_itself=starts_itself,
        internal=internal,
        function=function,
        job_parameter=signature.job_parameter,
        decode=signature.decode,
    )


def _kind(function: Callable[..., Any], isolated: bool) -> Kind:
    if not inspect.isroutine(function):
        raise TypeError(f"an endpoint must be a function, not {type(function).__name__}")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise TypeError(
            f"{function.__qualname__} yields; an endpoint returns one value, and sends output"
            " while it runs with job.emit(...)"
        )
    if isolated:
        _check_importable(function)
        return "isolated"
    return "inline" if inspect.iscoroutinefunction(function) else "thread"


def _check_importable(function: Callable[..., Any]) -> None:
    """Check that a new process can find the function by its name."""
    where = f"{function.__module__}:{function.__qualname__}"
    if "<" in function.__qualname__ or not inspect.isfunction(function):
        raise TypeError(
            f"{where} cannot run isolated: it must be a module-level function, not a lambda, a"
            " bound method, or a nested function"
        )
    if function.__module__ == "__main__":
        raise TypeError(
            f"{where} cannot run isolated: __main__ cannot be imported; move it to a module"
        )


def _check_path(path: str) -> None:
    if not is_path(path):
        raise ValueError(
            f"{path!r} is not a valid path: paths start with '/', and each segment consists of"
            " letters, digits, '.', '_', '~' and '-', or is a {parameter}"
        )
    names = path_parameters(path)
    if len(set(names)) < len(names):
        raise ValueError(f"{path!r} names a parameter twice")


def _lane(lane: Lane | str) -> Lane:
    try:
        return Lane(lane)
    except ValueError:
        raise ValueError(f"{lane!r} is not a lane; use one of {', '.join(Lane)}") from None


def _auth(auth: Auth) -> Auth:
    if auth not in _AUTHS:
        raise ValueError(f"{auth!r} is not a valid auth; use one of {', '.join(_AUTHS)}")
    return auth


def _seconds(option: str, seconds: float, at_most: float = _SECONDS_MAX) -> float:
    if not _is_number(seconds) or not 0.0 < seconds <= at_most:
        bound = "" if at_most == _SECONDS_MAX else f" and at most {at_most:g}"
        raise ValueError(f"{option} must be a number of seconds above 0{bound}, not {seconds!r}")
    return float(seconds)


def _retention(option: str, seconds: float | None) -> float | None:
    if seconds is None:
        return None
    if not _is_number(seconds) or not 0.0 <= seconds <= _SECONDS_MAX:
        raise ValueError(f"{option} must be a number of seconds, 0 or more, not {seconds!r}")
    return float(seconds)


def _whole(
    option: str, number: int | None, *, at_least: int, at_most: int = _SECONDS_MAX
) -> int | None:
    if number is None:
        return None
    if isinstance(number, bool) or not isinstance(number, int):
        raise TypeError(f"{option} must be a whole number, not {number!r}")
    if not at_least <= number <= at_most:
        raise ValueError(f"{option} must be from {at_least} to {at_most}, not {number}")
    return number


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def load_services(targets: Iterable[str]) -> list[Service]:
    """The services that ``module:attribute`` strings name, in order, without duplicates.

    Searches the current folder first. Raises SettingsInvalid with a hint if a target names no
    service; an error inside the module itself propagates.
    """
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    by_name: dict[tuple[str, int], tuple[str, Service]] = {}
    for target in targets:
        service = _load(target)
        version = (service.name, service.version)
        first, known = by_name.setdefault(version, (target, service))
        if known is not service:
            raise SettingsInvalid(
                f"{first} and {target} are two services with the same name, {service.name!r};"
                " rename one or give it another version"
            )
    return [service for _, service in by_name.values()]


def _load(target: str) -> Service:
    module_name, colon, attribute = target.partition(":")
    if not (colon and module_name and attribute) or module_name.startswith("."):
        raise SettingsInvalid(
            f"{target!r} is not a service name; write it as module:attribute, such as app:docs"
        )
    module = _import(target, module_name)
    try:
        found = reduce(getattr, attribute.split("."), module)
    except AttributeError:
        raise SettingsInvalid(
            f"{target!r}: {module_name} has no {attribute!r}.{_services_hint(module_name, module)}"
        ) from None
    if not isinstance(found, Service):
        raise SettingsInvalid(
            f"{target!r} is a {type(found).__name__}, not a Service."
            f"{_services_hint(module_name, module)}"
        )
    return found


def _import(target: str, module_name: str) -> Any:
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if module_name != missing and not module_name.startswith(f"{missing}."):
            raise  # the module was found, but one of its imports was not
        raise SettingsInvalid(
            f"{target!r}: no module {missing!r} in {Path.cwd()} or on the Python path; run the"
            " command in the folder that contains it, or set PYTHONPATH"
        ) from None


def _services_hint(module_name: str, module: Any) -> str:
    names = [name for name, value in vars(module).items() if isinstance(value, Service)]
    if not names:
        return f" {module_name} declares no services."
    return " It has " + ", ".join(f"{module_name}:{name}" for name in names) + "."
