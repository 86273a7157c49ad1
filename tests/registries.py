"""Downloading one file of a package from the registry that this machine's own tools are set up for.

pip and npm say where that is, so that a mirror, a proxy or a folder serves the tests as it serves
an installation.
"""

from __future__ import annotations

import os
import shlex
import shutil
import ssl
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag, urljoin, urlsplit

import httpx2

TIMEOUT_SECONDS = 60.0
HTML_ONLY = {"Accept": "application/vnd.pypi.simple.v1+html, text/html;q=0.9"}
NAME_SEPARATORS = str.maketrans("_.", "--")


class RegistryError(Exception):
    """The registry does not have the file, or cannot be reached."""


def fetch_from_pypi(package: str, version: str, file: str, target: Path) -> None:
    """Download ``file``, which a Python package index lists for ``package``."""
    settings = _pip_settings()
    project = package.lower().translate(NAME_SEPARATORS)
    refusals = []
    with _http_client(settings) as client:
        for index in _indexes(settings):
            page_url = f"{index.rstrip('/')}/{project}/"
            try:
                link = _link_to(file, _read_page(client, page_url), page_url)
                if link is None:
                    refusals.append("an index does not list it")
                    continue
                _download(client, link, target)
            except (httpx2.HTTPError, OSError) as error:
                refusals.append(f"{type(error).__name__}: {error}")
            else:
                return
    raise RegistryError("; ".join(refusals))


def fetch_from_npm(package: str, version: str, file: str, target: Path) -> None:
    """Download the tarball of ``package`` by ``npm pack``, which runs no code of it."""
    if shutil.which("npm") is None:
        raise RegistryError("there is no npm here")
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        command = ["npm", "pack", f"{package}@{version}", "--ignore-scripts", "--loglevel=error"]
        packing = subprocess.run(command, cwd=folder, capture_output=True, text=True)
        if packing.returncode != 0:
            raise RegistryError(packing.stderr.strip() or f"npm pack: exit {packing.returncode}")
        packed = Path(folder) / file
        if not packed.is_file():
            found = ", ".join(path.name for path in Path(folder).iterdir())
            raise RegistryError(f"npm pack made {found or 'nothing'}, not {file}")
        packed.rename(target)


FETCH: dict[str, Callable[[str, str, str, Path], None]] = {
    "npm": fetch_from_npm,
    "pypi": fetch_from_pypi,
}


def _indexes(settings: dict[str, str]) -> Iterator[str]:
    from pip._internal.models.index import PyPI  # pip knows where its default index is

    yield from settings.get("index-url", PyPI.simple_url).split()
    yield from settings.get("extra-index-url", "").split()


def _pip_settings() -> dict[str, str]:
    """What pip is set up with; its environment variables win over its files."""
    listing = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=True
    ).stdout
    found: dict[str, dict[str, str]] = {"file": {}, "environment": {}}
    for line in listing.splitlines():
        name, _, quoted = line.partition("=")
        section, _, option = name.rpartition(".")
        if section in {"global", "install", "download"}:
            found["file"][option] = "".join(shlex.split(quoted))
        elif section == ":env:":
            found["environment"][option] = "".join(shlex.split(quoted))
    return found["file"] | found["environment"]


def _http_client(settings: dict[str, str]) -> httpx2.Client:
    authorities = settings.get("cert") or os.environ.get("SSL_CERT_FILE")
    return httpx2.Client(
        follow_redirects=True,
        timeout=TIMEOUT_SECONDS,
        verify=ssl.create_default_context(cafile=authorities),
    )


def _read_page(client: httpx2.Client, url: str) -> str:
    if urlsplit(url).scheme == "file":
        return (_local(url) / "index.html").read_text()
    answer = client.get(url, headers=HTML_ONLY)
    answer.raise_for_status()
    return answer.text


def _download(client: httpx2.Client, url: str, target: Path) -> None:
    if urlsplit(url).scheme == "file":
        shutil.copyfile(_local(url), target)
        return
    with client.stream("GET", url) as answer, target.open("wb") as file:
        answer.raise_for_status()
        for piece in answer.iter_bytes():
            file.write(piece)


def _local(url: str) -> Path:
    return Path(unquote(urlsplit(url).path))


def _link_to(file: str, page: str, page_url: str) -> str | None:
    """The address of ``file`` on an index's page (PEP 503)."""
    for address in _Links.on(page):
        absolute = urldefrag(urljoin(page_url, address)).url
        if unquote(urlsplit(absolute).path).endswith(f"/{file}"):
            return absolute
    return None


class _Links(HTMLParser):
    """Collects the addresses that a page links to."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []

    @classmethod
    def on(cls, page: str) -> list[str]:
        reader = cls()
        reader.feed(page)
        return reader.addresses

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        address = dict(attrs).get("href")
        if tag == "a" and address:
            self.addresses.append(address)
