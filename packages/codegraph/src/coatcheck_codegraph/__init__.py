"""A graph of source code: which files, functions and classes there are, and which use which.

Each file is parsed alone into facts (``parse``), the facts of all files are a ``Project``, and
``resolve`` connects them: imports, calls and base classes lead to declarations of other files.
``write_document`` writes the result as JSON. Nothing of the code is run, and nothing is fetched.
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
