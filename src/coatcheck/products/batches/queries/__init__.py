"""The statements of batches: files of named SQL, which the repositories beside this folder call."""

from coatcheck.db.queries import Queries

sql = Queries("coatcheck.products.batches.queries")
