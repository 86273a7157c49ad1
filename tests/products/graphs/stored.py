"""What a blob store holds of archives, and what a receipt says of them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from coatcheck.blobs import BlobContainer
from coatcheck.db.connection import Connection
from coatcheck.maintenance.retention import OrphanBlobSweeper
from tests.deployment import Deployment
from tests.waiting import eventually_async


async def inputs_in(container: BlobContainer) -> list[str]:
    """The keys of all pieces of archives, in order."""
    return sorted({key async for page in container.keys_under("inputs") for key in page})


async def sweep(deployment: Deployment, container: BlobContainer) -> None:
    """As the sweeper does, without waiting until orphans are old."""
    line = Connection(deployment.settings.database_url, name="tests sweep")
    await OrphanBlobSweeper(line, container, grace=timedelta(0)).tick()
    await line.close()


async def receipt_of(deployment: Deployment, body: Mapping[str, Any]) -> dict[str, Any]:
    answer = await deployment.http.get(body["urls"]["receipt"])
    assert answer.status_code == 200, answer.text
    receipt: dict[str, Any] = answer.json()["receipt"]
    return receipt


async def complete_receipt(deployment: Deployment, body: Mapping[str, Any]) -> dict[str, Any]:
    """The receipt, once it says that no copy is left."""

    async def look() -> dict[str, Any] | None:
        receipt = await receipt_of(deployment, body)
        return receipt if receipt["complete"] else None

    found: dict[str, Any] = await eventually_async(look, "the receipt is complete")
    for layer in found["layers"]:
        assert layer["storedAt"] <= layer["deletedAt"] <= found["issuedAt"]
    return found


def mechanisms(receipt: Mapping[str, Any]) -> dict[str, str]:
    """What deleted each layer."""
    return {layer["layer"]: layer["mechanism"] for layer in receipt["layers"]}
