"""The server that a command talks to over HTTP, and the key that it presents."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from coatcheck.cli import data_dir, secret_files
from coatcheck.cli.errors import Misconfigured
from coatcheck.client import Client
from coatcheck.client.addresses import Addresses
from coatcheck.client.configuration import (
    TOKEN_VARIABLE,
    URL_VARIABLE,
    base_url_or_default,
    token_or_default,
)
from coatcheck.client.credential import Bearer
from coatcheck.domain.tenants import DEFAULT_ORG

KEY_HINT: Final = (
    f"Set {TOKEN_VARIABLE}. `coatcheck up` keeps a key in the file dev-key of its data folder, "
    "which --data names; `coatcheck keys create` makes others."
)


@contextmanager
def server(data: Path | None, org: str = DEFAULT_ORG) -> Iterator[Client]:
    """A client of the server that ``address`` names."""
    url, token = address(data, org)
    with Client(url, token, org=org) as client:
        yield client


def address(data: Path | None, org: str = DEFAULT_ORG) -> tuple[str, str]:
    """The server that COATCHECK_URL names, and COATCHECK_API_KEY.

    Without one, and on this machine only, the key that ``up`` keeps in its data folder: a key of
    this machine is not for a server elsewhere.
    """
    url = base_url_or_default(None)
    token = token_or_default(None)
    if token is None and (data is not None or _is_here(url)):
        folder, _ = data_dir.choose(data)
        token = secret_files.read(folder / secret_files.DEV_KEY)
    if token is None:
        raise Misconfigured(f"there is no API key to present\n{KEY_HINT}")
    try:
        Addresses(url, org)
        Bearer(token)
    except ValueError as error:
        raise Misconfigured(
            f"the server cannot be asked: {error}\nLook at {URL_VARIABLE} and {TOKEN_VARIABLE}."
        ) from error
    return url, token


def _is_here(url: str) -> bool:
    try:
        host = urlsplit(url).hostname or ""
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
