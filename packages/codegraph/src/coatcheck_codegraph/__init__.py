"""A graph of source code: its files, functions and classes, and how they use each other.

``parse`` turns each file into facts, on its own. The facts of all files form a ``Project``, and
``resolve`` connects them: imports, calls and base classes lead to declarations in other files.
``write_document`` writes the result as JSON. The code is never run, and nothing is fetched.
"""

from coatcheck_codegraph.document import Processing, write_document
from coatcheck_codegraph.facts import FileFacts
from coatcheck_codegraph.languages import language_of
from coatcheck_codegraph.project import Project
from coatcheck_codegraph.reading import parse, read_folder
from coatcheck_codegraph.resolve import Resolution, resolve

__all__ = [
    "FileFacts",
    "Processing",
    "Project",
    "Resolution",
    "language_of",
    "parse",
    "read_folder",
    "resolve",
    "write_document",
]
