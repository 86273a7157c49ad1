"""The URLs of the API, and of what its answers point to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from urllib.parse import quote, unquote, urlsplit

import httpx2

from coatcheck.client.errors import UnexpectedAnswer

# Characters allowed in a path (RFC 3986), and % so that nothing is escaped twice.
_PATH_SAFE: Final = "/%:@!$&'()*+,;=~"
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}


class Addresses:
    """The URLs of one organisation on one server.

    ``base_url`` may have a path, if a proxy serves Coatcheck below one.
    """

    def __init__(self, base_url: str, org: str) -> None:
        self.base_url = base_url.rstrip("/")
        parts = urlsplit(self.base_url)
        if parts.scheme not in _DEFAULT_PORTS or not parts.hostname:
            raise ValueError("base_url must begin with http:// or https:// and have a host")
        if parts.username is not None or parts.password is not None:
            raise ValueError("base_url must not contain a credential; pass it as token")
        if parts.query or parts.fragment:
            raise ValueError("base_url must have neither a query nor a fragment")
        _ = parts.port  # raises ValueError if it is not valid
        self._prefix = parts.path
        self._origin = _origin(self.base_url)
        self.org = org
        self._org_url = f"{self.base_url}/api/v1/orgs/{_segment('org', org)}"

    def submit(self, service: str, version: int | None, path: str) -> str:
        return f"{self._service(service, version)}/async/{_path(path)}"

    def call(self, service: str, version: int | None, path: str) -> str:
        return f"{self._service(service, version)}/{_path(path)}"

    def job(self, service: str, job_id: str) -> str:
        return f"{self._service(service, None)}/jobs/{_segment('job', job_id)}"

    def jobs(self, service: str, workspace: str) -> str:
        return f"{self.hosted_service(service, workspace)}/jobs"

    def services(self) -> str:
        """The services that the organisation can call."""
        return f"{self._org_url}/services"

    def hosted_service(self, service: str, workspace: str) -> str:
        workspace, service = _segment("workspace", workspace), _segment("service", service)
        return f"{self._org_url}/workspaces/{workspace}/hosted-services/{service}"

    def org_jobs(self) -> str:
        """All jobs of the organisation, of every API."""
        return f"{self._org_url}/jobs"

    def org_job(self, job_id: str) -> str:
        return f"{self.org_jobs()}/{_segment('job', job_id)}"

    def overview(self) -> str:
        return f"{self._org_url}/overview"

    def operator(self, what: str) -> str:
        """What operators see of all organisations."""
        return f"{self.base_url}/api/v1/operator/{what}"

    def graphs(self, operation: str) -> str:
        return f"{self.base_url}/v1/graphs/{_segment('operation', operation)}"

    def graph_job(self, job_id: str) -> str:
        return f"{self.base_url}/v1/graphs/jobs/{_segment('job', job_id)}"

    def usage(self) -> str:
        return f"{self._org_url}/usage"

    def me(self) -> str:
        """The credential's owner."""
        return f"{self.base_url}/api/v1/me"

    def api_keys(self) -> str:
        return f"{self._org_url}/api-keys"

    def api_key(self, key_id: str) -> str:
        return f"{self.api_keys()}/{_segment('key', key_id)}"

    def webhooks(self, kind: str | None = None, name: str | None = None) -> str:
        """The webhooks of the organisation; of a kind, or the one with that name."""
        below = "" if kind is None else f"/{kind}"
        if kind is not None and name is not None:
            below += f"/{_segment(kind, name)}"
        return f"{self._org_url}/webhooks{below}"

    def batches(self) -> str:
        return f"{self.base_url}/v1/jobs"

    def batch(self, batch_id: str) -> str:
        return f"{self.batches()}/{_segment('batch', batch_id)}"

    def below(self, batch_id: str, kind: str, name: str) -> str:
        """A named part of a batch, such as one of its tasks."""
        return f"{self.batch(batch_id)}/{kind}/{_segment(kind, name)}"

    def uploads(self) -> str:
        return f"{self.base_url}/v1/uploads"

    def dead_letters(self) -> str:
        return f"{self.base_url}/v1/dlq"

    def dead_letter(self, letter_id: str) -> str:
        return f"{self.dead_letters()}/{_segment('dead letter', letter_id)}"

    def named(self, url: str) -> str:
        """A URL from an answer that the credential may be sent to.

        A server behind a proxy that strips a path does not know the path, so it is put back.
        """
        if not _is_path(url):
            if _origin(url) != self._origin:
                raise UnexpectedAnswer("the server names a URL that is not its own")
            return url
        return self._below_prefix(url)

    def signed(self, url: str) -> str:
        """A URL from an answer that works without a credential, on any server."""
        if _is_path(url):
            return self._below_prefix(url)
        if _origin(url)[0] not in _DEFAULT_PORTS:
            raise UnexpectedAnswer("the server names an invalid URL")
        return url

    def _below_prefix(self, url: str) -> str:
        origin = self.base_url.removesuffix(self._prefix)
        if self._prefix and not url.startswith(f"{self._prefix}/"):
            return f"{origin}{self._prefix}{url}"
        return f"{origin}{url}"

    def _service(self, service: str, version: int | None) -> str:
        url = f"{self._org_url}/services/{_segment('service', service)}"
        return url if version is None else f"{url}/v{version:d}"


def with_query(url: str, fields: Mapping[str, object]) -> str:
    """The URL with these query fields; those that are None are omitted."""
    given = {name: str(value) for name, value in fields.items() if value is not None}
    return str(httpx2.URL(url).copy_merge_params(given))


def _is_path(url: str) -> bool:
    return url.startswith("/") and not url.startswith("//")


def _segment(name: str, text: str) -> str:
    if text in ("", ".", ".."):
        raise ValueError(f"{name} must be a name, not {text!r}")
    return quote(text, safe="")


def _path(given: str) -> str:
    """An endpoint's path, with or without a leading slash, and its query if it has one."""
    path, question_mark, query = given.removeprefix("/").partition("?")
    if any(segment in (".", "..") for segment in unquote(path).split("/")):
        raise ValueError("a path must not contain . or .. segments")
    return quote(path, safe=_PATH_SAFE) + question_mark + quote(query, safe=_PATH_SAFE + "?")


def _origin(url: str) -> tuple[str, str | None, int | None]:
    try:
        parts = urlsplit(url)
        return parts.scheme, parts.hostname, parts.port or _DEFAULT_PORTS.get(parts.scheme)
    except ValueError as error:
        raise UnexpectedAnswer("the server names an invalid URL") from error
