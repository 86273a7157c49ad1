"""What is said over NOTIFY. Hints only: whoever misses one finds out by polling."""

from __future__ import annotations

from typing import Final

READY: Final = "coatcheck_ready"
"""There is work. Payload: the endpoints, comma-separated, or empty for "look yourself"."""

CHANGED: Final = "coatcheck_changed"
"""Jobs changed. Payload: their ids as hex, comma-separated, or empty for "look yourself"."""

CANCEL: Final = "coatcheck_cancel"
"""A running job is to be cancelled. Payload: its holder's boot number and the job's id as hex."""

KEYS: Final = "coatcheck_keys"
"""A credential or an organisation changed. Payload: a key's id, ``org:`` and an organisation's, or
empty for any."""

SERVICES: Final = "coatcheck_services"
"""A service changed. Payload: its organisation, a slash and its name, or empty for any."""

PAYLOAD_BYTES_MAX: Final = 7_000
"""PostgreSQL refuses 8,000 bytes."""
