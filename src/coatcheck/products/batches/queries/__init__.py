"""The queries of batches: files of named statements, and the functions that call them."""

from coatcheck.db.queries import Queries

sql = Queries("coatcheck.products.batches.queries")
