"""Receipts of files that jobs made, verified as those of inputs are."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from coatcheck.cli.receipt import app
from coatcheck.receipts import ArtifactReceipt
from coatcheck.receipts.signature import ReceiptRefused, Signer, verify
from tests.unit.receipt_samples import PEPPER, signed, signed_artifact

KEY = Signer.from_pepper(PEPPER).public_key


def test_a_receipt_says_what_became_of_every_file_of_the_name_and_no_place_of_ours() -> None:
    assert json.loads(signed_artifact())["receipt"] == {
        "version": 1,
        "kind": "artifact",
        "jobId": "01JX0RECE1PT0RECE1PT0RECE1",
        "orgId": "acme",
        "endpoint": "docs.post__draw",
        "name": "plan.svg",
        "mediaType": "image/svg+xml",
        "contentHash": f"sha256:{bytes(range(32)).hex()}",
        "bytes": 6,
        "layers": [
            {
                "layer": "blob",
                "place": "blob store",
                "storedAt": "2026-05-04T12:00:00.120000Z",
                "deletedAt": "2026-05-04T12:00:01.120000Z",
                "mechanism": "replaced",
            },
            {
                "layer": "blob",
                "place": "blob store",
                "storedAt": "2026-05-04T12:00:02.120000Z",
                "deletedAt": "2026-05-04T12:00:03.120000Z",
                "mechanism": "owner",
            },
        ],
        "complete": True,
        "issuedAt": "2026-05-04T12:00:03.120000Z",
    }


def test_one_that_is_there_makes_it_incomplete() -> None:
    receipt = verify(signed_artifact(complete=False), [KEY])
    assert isinstance(receipt, ArtifactReceipt)
    assert (receipt.complete, receipt.layers[1].deleted_at) == (False, None)


@pytest.mark.parametrize(
    ("field", "value"),
    [("kind", "input"), ("name", "other.svg"), ("bytes", 7), ("complete", False)],
)
def test_one_that_was_changed_is_refused(field: str, value: object) -> None:
    document = json.loads(signed_artifact())
    document["receipt"][field] = value
    with pytest.raises(ReceiptRefused, match="changed"):
        verify(json.dumps(document).encode(), [KEY])


def test_the_signature_of_an_inputs_receipt_proves_nothing_of_an_artifact() -> None:
    document = json.loads(signed_artifact())
    document["signature"] = json.loads(signed())["signature"]
    with pytest.raises(ReceiptRefused, match="differs from what was signed"):
        verify(json.dumps(document).encode(), [KEY])


@pytest.mark.parametrize(("complete", "exit_code"), [(True, 0), (False, 3)])
def test_the_command_shows_it(tmp_path: Path, complete: bool, exit_code: int) -> None:
    receipt, key = tmp_path / "receipt.json", tmp_path / "key.pem"
    receipt.write_bytes(signed_artifact(complete=complete, name="plan \x1b[2J.svg"))
    key.write_text(KEY.pem)
    ran = CliRunner().invoke(app, ["verify", str(receipt), "--key", str(key)])
    assert ran.exit_code == exit_code, ran.output
    for shown in ("docs.post__draw", "image/svg+xml", "replaced", "2026-05-04T12:00:02.120Z"):
        assert shown in ran.output
    assert "\x1b" not in ran.output, "a name moves nobody's cursor"
    assert ("all copies were deleted" in ran.output) is complete
    assert ("NOT DELETED" in ran.output) is not complete
