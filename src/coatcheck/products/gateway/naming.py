"""Between an engine's job and the gateway's service, version and endpoint.

An endpoint of Python code has an engine endpoint of its own: ``docs.post__analyze``, from version 2
on ``docs.v2.post__analyze``. All http upstreams share one, so that no worker needs to know them;
the job's queue key names the endpoint: ``docs.v1.post__analyze``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Protocol

from coatcheck.domain.catalogue import UPSTREAM_ENDPOINT

_VERSIONED: Final = re.compile(r"([^.]+)\.(?:v([1-9]\d*)\.)?([^.]+)")


@dataclass(frozen=True, slots=True)
class Named:
    """Which endpoint of which service a job is for."""

    service: str
    version: int
    key: str

    @property
    def version_id(self) -> str:
        return f"{self.service}.v{self.version}"

    @property
    def endpoint_id(self) -> str:
        return f"{self.service}.v{self.version}.{self.key}"


class Addressed(Protocol):
    """A job, or what is left of one."""

    @property
    def endpoint(self) -> str: ...

    @property
    def queue_key(self) -> str: ...


def name_of(job: Addressed) -> Named | None:
    """The endpoint of a job; None if it is no job of the gateway's."""
    is_upstream = job.endpoint == UPSTREAM_ENDPOINT
    found = _VERSIONED.fullmatch(job.queue_key if is_upstream else job.endpoint)
    if found is None:
        return None
    service, version, key = found.groups()
    return Named(service, int(version or 1), key)
