"""Adapters for remote functions (Modal, Replicate, RunPod, fal, HTTP) behind one protocol.

Adapters know nothing about jobs."""

from coatcheck.remotes.protocol import (
    Reattach,
    Remote,
    RemoteCompleted,
    RemoteError,
    RemoteFailed,
    RemoteFaulty,
    RemoteMisdefined,
    RemoteRefused,
    RemoteResult,
    RemoteRunning,
    RemoteStatus,
    RemoteUnclear,
    RemoteUnknown,
    RemoteUnreachable,
    SpawnRequest,
)
from coatcheck.remotes.registry import Remotes

__all__ = [
    "Reattach",
    "Remote",
    "RemoteCompleted",
    "RemoteError",
    "RemoteFailed",
    "RemoteFaulty",
    "RemoteMisdefined",
    "RemoteRefused",
    "RemoteResult",
    "RemoteRunning",
    "RemoteStatus",
    "RemoteUnclear",
    "RemoteUnknown",
    "RemoteUnreachable",
    "Remotes",
    "SpawnRequest",
]
