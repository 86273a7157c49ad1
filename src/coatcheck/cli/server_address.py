"""Finds the server that a command talks to, and the API key to use: the options, the configuration
file, and which of them decides.

Options come first, then the environment, then a profile of the configuration file, then the
``coatcheck up`` of this folder. A key is only sent to the server it is meant for: a profile's key
to the profile's server, the key of ``up`` to this machine. Without a configured organisation we ask
the server for the organisation of the key.
"""

from __future__ import annotations

import functools
import inspect
import ipaddress
import os
import shlex
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Concatenate, Final, ParamSpec
from urllib.parse import urlsplit

import typer

from coatcheck.cli import data_dir
from coatcheck.cli.command_errors import Misconfigured, reporting_errors
from coatcheck.cli.console import own_command
from coatcheck.client import AsyncClient, Client
from coatcheck.client._async.client import RETRIES
from coatcheck.client.addresses import Addresses
from coatcheck.client.request_headers import DEFAULT_URL, TOKEN_VARIABLE, URL_VARIABLE, Bearer
from coatcheck.domain.errors import CoatcheckError
from coatcheck.domain.tenants import DEFAULT_ORG

ORG_VARIABLE: Final = "COATCHECK_ORG"
NOBODY: Final = "the default"
"""The source of the server address if nothing configures one."""

KEY_HINT: Final = (
    f"Set {TOKEN_VARIABLE} or use a profile. `coatcheck up` stores a key in its data folder: name "
    "that with --data. `coatcheck keys create` creates a key."
)


class NothingStarted(CoatcheckError):
    """``coatcheck up`` has never run on the given data folder."""

    code = "nothing_started"


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """The server options of a command."""

    url: str | None = None
    api_key: str | None = field(default=None, repr=False)
    org: str | None = None
    profile: str | None = None
    data: Path | None = None

    @property
    def flags(self) -> str:
        """The options as text, for a command that users can copy. Without the key: it is secret."""
        given = {
            "--url": self.url,
            "--org": self.org,
            "--profile": self.profile,
            "--data": None if self.data is None else str(self.data),
        }
        return "".join(f" {name} {shlex.quote(text)}" for name, text in given.items() if text)


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """A server, an organisation and a key, and where each is configured.

    ``token`` is None if no key is configured. ``org`` is None if it is the organisation of the key
    and the server was not asked yet. ``*_from`` names the option, variable, profile or file.
    """

    url: str
    url_from: str
    org: str | None
    org_from: str
    token: str | None = field(repr=False)
    token_from: str
    flags: str = ""

    def client(self) -> Client:
        """A client for this server; the caller closes it."""
        return Client(self.url, self.token, org=self.org or DEFAULT_ORG)

    def async_client(self, retries: int = RETRIES) -> AsyncClient:
        """The same, for asyncio."""
        return AsyncClient(self.url, self.token, org=self.org or DEFAULT_ORG, retries=retries)

    def command(self, arguments: str) -> str:
        """A command line for the same server, which users can copy."""
        return f"{own_command()} {arguments}{self.flags}"


def find(options: ServerOptions) -> ServerConfig:
    """The server to talk to. Raises Misconfigured for a missing key or an invalid address, and the
    client's errors if it cannot find out the organisation of the key."""
    return ready(options, look(options, read_configuration()))


def ready(options: ServerOptions, server: ServerConfig) -> ServerConfig:
    """The same server, checked to have a valid address and key, with its organisation."""
    try:
        Addresses(server.url, server.org or DEFAULT_ORG)
    except ValueError as error:
        raise Misconfigured(
            f"invalid server address: {str(error).replace('base_url', 'it')}\n"
            f"It is set by {server.url_from}. An address looks like {DEFAULT_URL}."
        ) from error
    if server.token is None:
        if options.data is not None:
            raise NothingStarted(
                f"no API key in {data_dir.choose(options.data)[0]}\n"
                f"Run `coatcheck up --data {shlex.quote(str(options.data))}` first."
            )
        raise Misconfigured(f"no API key\n{KEY_HINT}")
    try:
        Bearer(server.token)
    except ValueError as error:
        raise Misconfigured(
            f"invalid API key: {error}\nIt is set by {server.token_from}. "
            f"Use {TOKEN_VARIABLE} to set another."
        ) from error
    if server.org is not None:
        return server
    with server.client() as client:
        return replace(server, org=client.me().org_id)


def look(options: ServerOptions, configuration: Configuration) -> ServerConfig:
    """The server as configured; the key may be missing."""
    named = options.profile or os.environ.get(PROFILE_VARIABLE, "").strip() or None
    profile = configuration.profile(named)
    url, url_from = _url(options, profile)
    token, token_from = _token(options, profile, url)
    org, org_from = _org(options, profile, url, token_from)
    return ServerConfig(url, url_from, org, org_from, token, token_from, options.flags)


def _url(options: ServerOptions, profile: Profile | None) -> tuple[str, str]:
    if options.url is not None:
        return options.url, "--url"
    if options.profile is not None and profile is not None and profile.url is not None:
        return profile.url, f"the profile {profile.name}"
    if options.data is not None:
        folder, _ = data_dir.choose(options.data)
        if (address := data_dir.read(folder / data_dir.ADDRESS)) is not None:
            return address, str(folder / data_dir.ADDRESS)
    if set_to := os.environ.get(URL_VARIABLE):
        return set_to, URL_VARIABLE
    if options.data is None and profile is not None and profile.url is not None:
        return profile.url, f"the profile {profile.name}"
    folder, _ = data_dir.choose(options.data)
    if (address := data_dir.read(folder / data_dir.ADDRESS)) is not None:
        return address, str(folder / data_dir.ADDRESS)
    return DEFAULT_URL, NOBODY


def _token(options: ServerOptions, profile: Profile | None, url: str) -> tuple[str | None, str]:
    if options.api_key is not None:
        return options.api_key, "--api-key"
    of_profile = profile is not None and _is_same(profile.url, url)
    if options.profile is not None and profile is not None and of_profile:
        return profile.key(), f"the profile {profile.name}"
    if options.data is not None and _is_meant(options, url) and (key := _stored_key(options.data)):
        return key
    if set_to := os.environ.get(TOKEN_VARIABLE):
        return set_to, TOKEN_VARIABLE
    if profile is not None and of_profile and (token := profile.key()) is not None:
        return token, f"the profile {profile.name}"
    # The key of a local `up` must not be sent to a remote server.
    if _is_here(url) and (key := _stored_key(options.data)) is not None:
        return key
    return None, "nowhere"


def _org(
    options: ServerOptions, profile: Profile | None, url: str, token_from: str
) -> tuple[str | None, str]:
    if options.org is not None:
        return options.org, "--org"
    of_profile = profile is not None and _is_same(profile.url, url)
    if options.profile is None and (set_to := os.environ.get(ORG_VARIABLE)):
        return set_to, ORG_VARIABLE
    if profile is not None and of_profile and profile.org is not None:
        return profile.org, f"the profile {profile.name}"
    if set_to := os.environ.get(ORG_VARIABLE):
        return set_to, ORG_VARIABLE
    if token_from == str(data_dir.choose(options.data)[0] / data_dir.DEV_KEY):
        return DEFAULT_ORG, "`up`"
    return None, "the key"


def _stored_key(data: Path | None) -> tuple[str, str] | None:
    folder, _ = data_dir.choose(data)
    path = folder / data_dir.DEV_KEY
    key = data_dir.read(path)
    return None if key is None else (key, str(path))


def _is_meant(options: ServerOptions, url: str) -> bool:
    """Whether the key of the given folder is for this server: it is the folder's own server, is on
    this machine, or was given together with the folder."""
    folder, _ = data_dir.choose(options.data)
    address = data_dir.read(folder / data_dir.ADDRESS)
    return options.url is not None or _is_here(url) or (address is not None and address == url)


def _is_same(named: str | None, url: str) -> bool:
    return (named or DEFAULT_URL).rstrip("/") == url.rstrip("/")


def _is_here(url: str) -> bool:
    try:
        host = urlsplit(url).hostname or ""
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


CONFIG_VARIABLE: Final = "COATCHECK_CONFIG"
PROFILE_VARIABLE: Final = "COATCHECK_PROFILE"
_FIELDS: Final = ("url", "api_key", "api_key_file", "org")
_TOP: Final = ("default", "profiles")


@dataclass(frozen=True, slots=True)
class Profile:
    """A server and its credentials. What is None comes from options or the environment."""

    name: str
    url: str | None = None
    org: str | None = None
    api_key: str | None = field(default=None, repr=False)
    api_key_file: Path | None = None

    def key(self) -> str | None:
        """The API key, read from its file if it has one. Raises Misconfigured."""
        if self.api_key is not None or self.api_key_file is None:
            return self.api_key
        try:
            return self.api_key_file.read_text().strip() or None
        except OSError as error:
            raise Misconfigured(
                f"cannot read the key of the profile {self.name!r}: "
                f"{self.api_key_file}: {error.strerror}"
            ) from error
        except UnicodeDecodeError as error:
            raise Misconfigured(
                f"the key of the profile {self.name!r} is not text: {self.api_key_file}"
            ) from error


@dataclass(frozen=True, slots=True)
class Configuration:
    """The content of the file. ``exists`` is false without a file."""

    path: Path
    exists: bool = False
    default: str | None = None
    profiles: Mapping[str, Profile] = field(default_factory=dict)

    def profile(self, name: str | None) -> Profile | None:
        """The profile of that name, or the default profile; None without either."""
        wanted = name or self.default
        if wanted is None:
            return None
        if wanted not in self.profiles:
            known = ", ".join(self.profiles) or "none"
            raise Misconfigured(f"profile {wanted!r} not found in {self.path}\nProfiles: {known}.")
        return self.profiles[wanted]


def config_path(environment: Mapping[str, str]) -> Path:
    """The path of the file, whether it exists or not."""
    named = environment.get(CONFIG_VARIABLE, "").strip()
    if named:
        return Path(named).expanduser()
    home = environment.get("XDG_CONFIG_HOME", "").strip() or "~/.config"
    return Path(home).expanduser() / "coatcheck" / "config.toml"


def read_configuration(environment: Mapping[str, str] | None = None) -> Configuration:
    """Read and validate the file. Raises Misconfigured."""
    environment = os.environ if environment is None else environment
    path = config_path(environment)
    try:
        document = tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        if environment.get(CONFIG_VARIABLE, "").strip():
            raise Misconfigured(
                f"{CONFIG_VARIABLE} names a file that does not exist: {path}"
            ) from None
        return Configuration(path)
    except OSError as error:
        raise Misconfigured(f"{path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise Misconfigured(f"{path} is not valid TOML: {error}") from error
    _refuse_unknown(path, "the file", document, _TOP)
    profiles = document.get("profiles", {})
    default = document.get("default")
    if not isinstance(profiles, dict) or not isinstance(default, str | None):
        raise Misconfigured(f'{path}: expected default = "work" and [profiles.work]')
    return Configuration(
        path, True, default, {name: _profile(path, name, each) for name, each in profiles.items()}
    )


def _profile(path: Path, name: str, fields: Any) -> Profile:
    table = f"[profiles.{name}]"
    if not isinstance(fields, dict) or not all(isinstance(v, str) for v in fields.values()):
        raise Misconfigured(f'{path}: {table} takes strings, such as url = "https://..."')
    _refuse_unknown(path, table, fields, _FIELDS)
    if "api_key" in fields and "api_key_file" in fields:
        raise Misconfigured(f"{path}: {table} has both api_key and api_key_file; remove one")
    file = fields.get("api_key_file")
    return Profile(
        name,
        url=fields.get("url"),
        org=fields.get("org"),
        api_key=fields.get("api_key"),
        api_key_file=None if file is None else path.parent / Path(file).expanduser(),
    )


def _refuse_unknown(
    path: Path, table: str, given: Mapping[str, Any], known: tuple[str, ...]
) -> None:
    for name in given:
        if name not in known:
            raise Misconfigured(
                f"{path}: {table} has an unknown field {name!r}\nKnown: {', '.join(known)}."
            )


Parameters = ParamSpec("Parameters")

_PANEL: Final = "Server"


def _option(*names: str, text: str, metavar: str | None = None) -> Any:
    return typer.Option(*names, help=text, metavar=metavar, rich_help_panel=_PANEL)


def _parameter(name: str, kind: Any, option: Any) -> inspect.Parameter:
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind, option]
    )


_OPTIONS: Final = (
    _parameter("url", str | None, _option("--url", text="Server address. Default: COATCHECK_URL.")),
    _parameter(
        "api_key",
        str | None,
        _option("--api-key", metavar="KEY", text="API key or token. Default: COATCHECK_API_KEY."),
    ),
    _parameter("org", str | None, _option("--org", text="Organisation. Default: COATCHECK_ORG.")),
    _parameter(
        "profile",
        str | None,
        _option("--profile", metavar="NAME", text="Profile of the configuration file."),
    ),
    _parameter(
        "data", Path | None, _option("--data", metavar="DIR", text="Data folder of `coatcheck up`.")
    ),
)

SERVER_OPTIONS: Final = ("--url", "--api-key", "--org", "--profile", "--data")
"""The reference documents these once, for all commands."""


def on_server(
    command: Callable[Concatenate[ServerConfig, Parameters], None],
) -> Callable[..., None]:
    """Turns a function whose first argument is the server into a command.

    The command has the function's other arguments and the server options, and reports errors in one
    line.
    """
    return _with_options(command, find)


def with_server_options(
    command: Callable[Concatenate[ServerOptions, Parameters], None],
) -> Callable[..., None]:
    """The same for a function that interprets the server options itself."""
    return _with_options(command, lambda options: options)


def _with_options(
    command: Callable[..., None], first_argument: Callable[[ServerOptions], object]
) -> Callable[..., None]:
    signature = inspect.signature(command, eval_str=True)
    _, *own = signature.parameters.values()

    def called(**given: Any) -> None:
        options = ServerOptions(**{option.name: given.pop(option.name) for option in _OPTIONS})
        command(first_argument(options), **given)

    functools.update_wrapper(called, command)
    parameters = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in own]
    parameters += _OPTIONS
    called.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    called.__annotations__ = {each.name: each.annotation for each in parameters}
    return reporting_errors(called)
