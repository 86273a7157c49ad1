"""``coatcheck receipt``: verifies deletion receipts, and prints the public key."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.text import Text

from coatcheck.cli.command_errors import EXIT_FAILED, Misconfigured, reporting_errors
from coatcheck.cli.console import complain, out
from coatcheck.cli.data_dir import DataOption, settings_for
from coatcheck.cli.options import JsonOption
from coatcheck.encoding import encode
from coatcheck.receipts import ArtifactReceipt, Receipt
from coatcheck.receipts.signature import ReceiptRefused, Signer, read_public_keys
from coatcheck.receipts.signature import verify as verify_receipt

EXIT_INCOMPLETE: Final = 3

app: Final = typer.Typer(
    name="receipt", no_args_is_help=True, help="Verify deletion receipts; print the public key."
)


@app.command()
@reporting_errors
def verify(
    receipt: Annotated[Path, typer.Argument(metavar="RECEIPT.json", help="The receipt.")],
    key: Annotated[
        Path, typer.Option(metavar="FILE", help="The public key: PEM, a JWK or a JWK set.")
    ],
    as_json: JsonOption = False,
) -> None:
    """Verify a receipt offline. Exit code 0 if it is genuine and all copies were deleted.

    Exit code 1: it was changed, or signed with another key. Exit code 3: it is genuine,
    but a copy was not yet deleted when it was issued.
    """
    try:
        keys = read_public_keys(key.read_bytes())
    except (ValueError, OSError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise Misconfigured(f"{key} is not a usable public key: {reason}") from error
    try:
        verified = verify_receipt(receipt.read_bytes(), keys)
    except ReceiptRefused as error:
        complain(f"{receipt} is not genuine: {error}")
        raise typer.Exit(EXIT_FAILED) from None
    if as_json:
        typer.echo(encode(verified))
    else:
        _show(verified)
    if not verified.complete:
        complain(
            "the receipt is genuine but incomplete: copies were left when it was issued",
            "Download it again after the job has ended.",
        )
        raise typer.Exit(EXIT_INCOMPLETE)


@app.command(name="key")
@reporting_errors
def key_command(
    jwk: Annotated[
        bool, typer.Option("--jwk", "--json", help="Print a JSON Web Key instead of PEM.")
    ] = False,
    data: DataOption = None,
) -> None:
    """Print the public key that verifies this deployment's receipts, as PEM."""
    public = Signer.from_pepper(settings_for(data).require("key_pepper")).public_key
    typer.echo(json.dumps(public.jwk) if jwk else public.pem.rstrip("\n"))


def _show(receipt: Receipt | ArtifactReceipt) -> None:
    lines = [
        ("job", receipt.job_id),
        ("organisation", receipt.org_id),
        *_of_its_kind(receipt),
        ("content", f"{receipt.content_hash}, {receipt.bytes} bytes"),
        ("issued", _moment(receipt.issued_at)),
    ]
    for name, value in lines:
        out.print(Text(f"{name:<13}{value}"))
    rows = [("layer", "place", "stored", "deleted", "by")]
    for layer in receipt.layers:
        deleted = "NOT DELETED" if layer.deleted_at is None else _moment(layer.deleted_at)
        by = layer.mechanism or "-"
        rows.append((layer.layer, layer.place, _moment(layer.stored_at), deleted, by))
    # Not a Rich table: that would wrap times on a narrow terminal.
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        out.print(Text("  ".join(cells).rstrip()))
    if receipt.complete:
        out.print(Text("genuine and complete: all copies were deleted", style="bold green"))


def _of_its_kind(receipt: Receipt | ArtifactReceipt) -> list[tuple[str, str]]:
    if isinstance(receipt, ArtifactReceipt):
        file = f"{_printable(receipt.name)}, {_printable(receipt.media_type)}"
        return [("endpoint", receipt.endpoint), ("artifact", file)]
    return [("operation", receipt.operation), ("received", _moment(receipt.received_at))]


def _printable(text: str) -> str:
    """Text of a handler without control characters."""
    return "".join(letter if letter.isprintable() else "\ufffd" for letter in text)


def _moment(moment: datetime) -> str:
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
