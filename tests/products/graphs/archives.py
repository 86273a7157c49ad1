"""Archives and forms for the tests of the graphs surface."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping
from typing import Any

import httpx2

MIB = 1024 * 1024
PROGRAM = {
    "shop/__init__.py": "",
    "shop/prices.py": "def price(item: str) -> int:\n    return len(item)\n",
    "shop/till.py": (
        "from shop.prices import price\n\n\n"
        "class Till:\n"
        "    def total(self, items: list[str]) -> int:\n"
        "        return sum(price(item) for item in items)\n"
    ),
}


def zipped(files: Mapping[str, str | bytes], *, method: int = zipfile.ZIP_DEFLATED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        for name, content in files.items():
            # A fixed time: the same files are the same archive.
            archive.writestr(zipfile.ZipInfo(name, (2026, 1, 1, 0, 0, 0)), content, method)
    return buffer.getvalue()


def form(archive: bytes, part: str = "file") -> dict[str, Any]:
    """What httpx2 calls ``files``."""
    return {part: ("code.zip", archive, "application/zip")}


async def post(
    http: httpx2.AsyncClient,
    archive: bytes,
    key: str,
    *,
    operation: str = "call",
    **headers: str,
) -> httpx2.Response:
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    return await http.post(
        f"/v1/graphs/{operation}", files=form(archive), headers={"Idempotency-Key": key} | names
    )
