"""Names of domains are put into a document when they are known."""

from __future__ import annotations

import json

import pytest

from coatcheck_codegraph.domain_document import DomainEntry, DomainMarks


def entry(name: str, description: str) -> DomainEntry:
    return DomainEntry(
        id="domain-1",
        name=name,
        description=description,
        path="",
        keywords=[],
        file_count=1,
        function_count=0,
        uses=[],
    )


DOMAINS = [entry('The "first"', "One\u2028line"), entry("Zwölf", "")]
MARKED = json.dumps(
    [
        {"name": DomainMarks.name(at), "text": DomainMarks.description(at), "other": "x" * at}
        for at in (0, 1, 0, 1)
    ]
    + ["\x01", "\x01n9", "\x01n99999999999999", "n0", "\x01n0 and more", 'a\x01n0"']
).encode()


@pytest.mark.parametrize("size", [1, 2, 5, 31, 33, 64, 1000])
def test_marks_are_replaced_wherever_a_piece_ends(size: int) -> None:
    marks = DomainMarks(DOMAINS)
    pieces = [MARKED[at : at + size] for at in range(0, len(MARKED), size)]
    result = json.loads(b"".join([*(marks.feed(piece) for piece in pieces), marks.finish()]))
    assert [(each["name"], each["text"]) for each in result[:4]] == [
        (DOMAINS[at].name, DOMAINS[at].description) for at in (0, 1, 0, 1)
    ]
    # What only looks like one is left as it is.
    assert result[4:] == json.loads(MARKED)[4:]
