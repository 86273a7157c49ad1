"""From where work goes to an adapter that can be asked: opened once for each place and
organisation."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Final

from coatcheck.core.service_secrets import ServiceSecrets
from coatcheck.domain.catalogue import remote_address
from coatcheck.domain.errors import SecretsLost
from coatcheck.domain.remote_work import Destination, OperatorRemote, encode_destination
from coatcheck.domain.target_secrets import TargetSecrets, encode_secrets
from coatcheck.remotes import Remote, Remotes
from coatcheck.remotes.errors import RemoteMisdefined

_KEPT_OPEN_MAX: Final = 512

Place = bytes
"""What two destinations have in common that go to the same place."""


class Destinations:
    """Opens destinations. ``operators`` are the operator's own targets by name: they are asked
    wherever they lead, and looked up anew by every process, so a new address needs a restart.
    ``secrets`` has those of tenants."""

    def __init__(
        self, remotes: Remotes, operators: Mapping[str, OperatorRemote], secrets: ServiceSecrets
    ) -> None:
        self._remotes = remotes
        self._operators = operators
        self._secrets = secrets
        self._open: dict[tuple[Place, str, bytes], Remote] = {}

    def place(self, to: Destination) -> Place:
        """Where it goes, whatever for. Secrets have ids of their organisation's own, so what one
        place has in common is one organisation's, unless it needs none."""
        return encode_destination(Destination(to.target, to.secrets_id, to.operator))

    def pace_key(self, to: Destination) -> str:
        """What work of one kind has in common: that it goes to one place. Its flow would not do,
        which may end in a word of a task's payload."""
        return hashlib.sha256(self.place(to)).hexdigest()

    async def open(self, org: str, to: Destination) -> Remote:
        """The adapter, for work of ``org``. Raises RemoteMisdefined, SealingKeyMissing if nothing
        opens its secrets yet, and SecretsLost if nothing ever will."""
        secrets = await self._secrets_of(org, to)
        if self._is_shared(to):
            org = ""
        # With the values: an adapter that was opened before they were replaced is not used again.
        key = self.place(to), org, b"" if secrets is None else encode_secrets(secrets)
        remote = self._open.get(key)
        if remote is None:
            if len(self._open) >= _KEPT_OPEN_MAX:
                self._open.clear()
            remote = self._open[key] = self._opened(org, to, secrets)
        return remote

    def _is_shared(self, to: Destination) -> bool:
        """Whether all organisations use one adapter: Modal's keeps a session of the operator's."""
        target = self._operators.get(to.operator) if to.operator else None
        return target is not None and (target.target or {}).get("adapter") == "modal"

    async def _secrets_of(self, org: str, to: Destination) -> TargetSecrets | None:
        if not to.secrets_id:
            return None
        secrets = await self._secrets.find(org, to.secrets_id)
        if to.target is None or secrets.address != remote_address(to.target):
            raise SecretsLost("The secrets that the job names were given for another address.")
        return secrets

    def _opened(self, org: str, to: Destination, secrets: TargetSecrets | None) -> Remote:
        if not to.operator:
            values = {} if secrets is None else secrets.values
            return self._remotes.open(to.target, secret=values.get, org=org)
        target = self._operators.get(to.operator)
        if target is None:
            name = to.operator.partition(".")[2] or to.operator
            raise RemoteMisdefined(f"The operator has no remote {name!r} (any more).")
        return self._remotes.open(
            target.target, secret=target.secrets.get, by_operator=True, org=org
        )
