"""From where work goes to an adapter that can be asked: opened once for each place and
organisation."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Final

from coatcheck.domain.remote_work import Destination, encode_destination
from coatcheck.remotes import Remote, Remotes
from coatcheck.remotes.errors import RemoteMisdefined

_KEPT_OPEN_MAX: Final = 512

Place = bytes
"""What two destinations have in common that go to the same place."""


class Destinations:
    """Opens destinations. ``operators`` are the operator's own targets by name: they are asked
    wherever they lead, and looked up anew by every process, so a new address needs a restart."""

    def __init__(self, remotes: Remotes, operators: Mapping[str, Destination]) -> None:
        self._remotes = remotes
        self._operators = operators
        self._open: dict[tuple[Place, str], Remote] = {}

    def place(self, to: Destination) -> Place:
        """Where it goes, whatever for."""
        return encode_destination(Destination(to.target, to.secrets, to.operator))

    def pace_key(self, to: Destination) -> str:
        """What work of one kind has in common: that it goes to one place. Its flow would not do,
        which may end in a word of a task's payload."""
        return hashlib.sha256(self.place(to)).hexdigest()

    def open(self, to: Destination, org: str) -> Remote:
        """The adapter, for work of ``org``. Raises RemoteMisdefined."""
        if self._is_shared(to):
            org = ""
        key = self.place(to), org
        remote = self._open.get(key)
        if remote is None:
            if len(self._open) >= _KEPT_OPEN_MAX:
                self._open.clear()
            remote = self._open[key] = self._opened(to, org)
        return remote

    def _is_shared(self, to: Destination) -> bool:
        """Whether all organisations use one adapter: Modal's keeps a session of the operator's."""
        target = self._operators.get(to.operator) if to.operator else None
        return target is not None and (target.target or {}).get("adapter") == "modal"

    def _opened(self, to: Destination, org: str) -> Remote:
        if not to.operator:
            return self._remotes.open(to.target, secret=to.secrets.get, org=org)
        target = self._operators.get(to.operator)
        if target is None:
            name = to.operator.partition(".")[2] or to.operator
            raise RemoteMisdefined(f"The operator has no remote {name!r} (any more).")
        return self._remotes.open(
            target.target, secret=target.secrets.get, by_operator=True, org=org
        )
