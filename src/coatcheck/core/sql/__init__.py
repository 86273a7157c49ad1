"""The SQL statements of this package, one per file, each with its reason in its header."""

from __future__ import annotations

from coatcheck.db.statements import statements

sql = statements(__name__)
