"""The one request to Azure Blob that obstore does not make: creating a container."""

from __future__ import annotations

import base64
import hmac
from datetime import UTC, datetime

import httpx2

# The account that every Azurite and every emulator has; its key is public by design.
ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
VERSION = "2021-12-02"


def create_container(url: str, container: str) -> None:
    """Create a container on the Azurite at ``url``."""
    date = datetime.now(UTC).strftime("%a, %d %b %Y %H:%M:%S GMT")
    resource = f"/{ACCOUNT}/{ACCOUNT}/{container}\nrestype:container"
    to_sign = "PUT" + "\n" * 12 + f"x-ms-date:{date}\nx-ms-version:{VERSION}\n{resource}"
    signature = hmac.digest(base64.b64decode(KEY), to_sign.encode(), "sha256")
    httpx2.put(
        f"{url}/{ACCOUNT}/{container}",
        params={"restype": "container"},
        headers={
            "x-ms-date": date,
            "x-ms-version": VERSION,
            "Authorization": f"SharedKey {ACCOUNT}:{base64.b64encode(signature).decode()}",
        },
    ).raise_for_status()
