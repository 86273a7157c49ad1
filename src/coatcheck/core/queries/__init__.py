"""The core's queries, by aggregate: named statements, and the functions that call them."""

from coatcheck.db.queries import Queries

sql = Queries("coatcheck.core.queries")
