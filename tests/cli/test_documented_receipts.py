"""Receipts are verified by the commands that the pages about them show."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from coatcheck.cli.app import app
from coatcheck.receipts.signature import Signer
from tests.markdown import REPOSITORY, Page
from tests.unit.receipt_samples import PEPPER, signed, signed_artifact

ARCHIVES = Page(REPOSITORY / "docs/explanation/zero-retention.md")
ARTIFACTS = Page(REPOSITORY / "docs/reference/artifacts.md")
DEPLOYMENT = {
    "COATCHECK_KEY_PEPPER": PEPPER,
    "COATCHECK_DATABASE_URL": "postgresql://nowhere/none",
}


@pytest.mark.parametrize(
    ("page", "complete", "incomplete"),
    [
        (ARCHIVES, signed(), signed(complete=False)),
        (ARTIFACTS, signed_artifact(), signed_artifact(complete=False)),
    ],
    ids=["zero-retention", "artifacts"],
)
def test_a_receipt_is_verified_as_its_page_says(
    page: Page,
    complete: bytes,
    incomplete: bytes,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    key = CliRunner().invoke(app, ["receipt", "key"], env=DEPLOYMENT)
    Path("key.pem").write_text(key.stdout)
    published = {"keys": [Signer.from_pepper(PEPPER).public_key.jwk]}  # as a server answers them
    Path("keys.json").write_text(json.dumps(published))
    (block,) = page.blocks("sh")
    program, *arguments = shlex.split(block.text)
    assert program == "coatcheck"
    for receipt, exit_code in (
        (complete, 0),
        (complete.replace(b"2026-", b"2027-", 1), 1),
        (incomplete, 3),
    ):
        Path("receipt.json").write_bytes(receipt)
        ran = CliRunner().invoke(app, arguments)
        assert ran.exit_code == exit_code, ran.output
