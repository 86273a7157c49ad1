"""Finds the gateway's service, version and endpoint from the names that a job is stored with.

Each endpoint of Python code has its own engine endpoint: ``docs.post__analyze``, and from version 2
on ``docs.v2.post__analyze``. All http upstreams share one engine endpoint, so that no worker needs
to know them; the job's queue key (``flow``) names the endpoint: ``docs.v1.post__analyze``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Protocol

from coatcheck.domain.catalogue import UPSTREAM_ENDPOINT

_VERSIONED: Final = re.compile(r"([^.]+)\.(?:v([1-9]\d*)\.)?([^.]+)")


@dataclass(frozen=True, slots=True)
class EndpointRef:
    """The service, version and endpoint that a job is for."""

    service: str
    version: int
    key: str

    @property
    def version_id(self) -> str:
        return f"{self.service}.v{self.version}"

    @property
    def endpoint_id(self) -> str:
        return f"{self.service}.v{self.version}.{self.key}"


class HasEndpoint(Protocol):
    """A job, or the record of a deleted one."""

    @property
    def endpoint(self) -> str: ...

    @property
    def queue_key(self) -> str: ...


def endpoint_ref(job: HasEndpoint) -> EndpointRef | None:
    """The endpoint of a job; None if it is not a gateway job."""
    is_upstream = job.endpoint == UPSTREAM_ENDPOINT
    found = _VERSIONED.fullmatch(job.queue_key if is_upstream else job.endpoint)
    if found is None:
        return None
    service, version, key = found.groups()
    return EndpointRef(service, int(version or 1), key)
