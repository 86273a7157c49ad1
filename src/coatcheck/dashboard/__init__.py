"""The dashboard at ``/ui``: HTML pages rendered from responses of the public API.

It reads no database and imports no engine. Each page calls the API in the same process with the
visitor's own credential (docs/adr/0031), so a page shows and does only what its visitor is allowed
to see and do.
"""
