"""API keys: ``cck_<id>_<secret>``.

The id is a public ULID that finds the key's row. The secret has 256 random bits. Only its
HMAC-SHA256 is stored, under a pepper that only the servers know, so a copy of the database is
useless.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import string
from dataclasses import dataclass
from typing import Final

from coatcheck.domain import ids

PREFIX: Final = b"cck_"
PEPPER_CHARACTERS_MIN: Final = 32
FORMAT: Final = (
    "cck_ID_SECRET: ID is a ULID of 26 characters, SECRET has 32 to 128 letters and digits"
)

_ALPHABET: Final = string.digits + string.ascii_uppercase + string.ascii_lowercase
_SECRET_BITS: Final = 256
_SECRET_CHARACTERS: Final = 43  # 256 bits at 62 letters
_KEY: Final = re.compile(rb"cck_([0-7][0-9A-HJKMNP-TV-Z]{25})_([0-9A-Za-z]{32,128})")


@dataclass(frozen=True, slots=True)
class KeyText:
    """The two halves of a key. ``secret`` never appears in a log or an error."""

    key_id: str
    secret: bytes

    def __repr__(self) -> str:
        return f"KeyText({self.key_id})"

    @property
    def text(self) -> str:
        """The key as its user sees it."""
        return f"cck_{self.key_id}_{self.secret.decode()}"

    def digest(self, pepper: bytes) -> bytes:
        """The hash of the secret, for storage."""
        return hmac.digest(pepper, self.secret, hashlib.sha256)


def mint() -> KeyText:
    """Create a new key."""
    number = secrets.randbits(_SECRET_BITS)
    letters = []
    for _ in range(_SECRET_CHARACTERS):
        number, letter = divmod(number, len(_ALPHABET))
        letters.append(_ALPHABET[letter])
    return KeyText(ids.to_text(ids.new_id()), "".join(letters).encode())


def parse(text: bytes) -> KeyText | None:
    """Split a key into its halves; None if it does not look like one."""
    found = _KEY.fullmatch(text)
    return None if found is None else KeyText(found[1].decode(), found[2])
