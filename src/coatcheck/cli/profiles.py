"""Reads the configuration file: profiles with a server address, a key and an organisation.

default = "work"

[profiles.work]
url = "https://jobs.example.org"
api_key_file = "~/.config/coatcheck/work-key"   # or api_key = "cck_..."
org = "acme"
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from coatcheck.cli.errors import Misconfigured

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
