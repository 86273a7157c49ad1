"""How much files have to do with each other."""

from __future__ import annotations

from coatcheck_codegraph.domain_document import files_of, links_of
from coatcheck_codegraph.domains import Link
from packages.codegraph.tests.graphs import analysed


def test_files_are_tied_by_imports_calls_and_inheritance_in_the_archive() -> None:
    seen = analysed(
        {
            "a.py": "import os\nfrom b import Base, f\n"
            "class A(Base): pass\nf()\nf()\nos.getpid()\n",
            "b.py": "class Base: pass\ndef f(): g()\ndef g(): pass\n",
            "package.json": '{"name": "x"}',
        }
    )

    assert [file.path for file in files_of(seen.resolution)] == ["a.py", "b.py"]
    assert files_of(seen.resolution)[1].identifiers == ["Base", "f", "g"]
    # One import, two calls, and a base class; what a file does with itself ties it to nothing.
    assert links_of(seen.resolution) == [Link(0, 1, 1.0 + 2.0 + 2.0)]
