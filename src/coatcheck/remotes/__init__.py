"""Adapters for remote functions (Modal, Replicate, RunPod, fal, HTTP) behind one protocol.

Adapters know nothing about jobs."""

from coatcheck.remotes.errors import (
    RemoteError,
    RemoteFaulty,
    RemoteMisdefined,
    RemoteRefused,
    RemoteUnreachable,
)
from coatcheck.remotes.protocol import (
    Completed,
    Failed,
    Reattach,
    Remote,
    RemoteResult,
    RemoteStatus,
    Running,
    SpawnRequest,
    Unclear,
    Unknown,
)
from coatcheck.remotes.registry import Remotes

__all__ = [
    "Completed",
    "Failed",
    "Reattach",
    "Remote",
    "RemoteError",
    "RemoteFaulty",
    "RemoteMisdefined",
    "RemoteRefused",
    "RemoteResult",
    "RemoteStatus",
    "RemoteUnreachable",
    "Remotes",
    "Running",
    "SpawnRequest",
    "Unclear",
    "Unknown",
]
