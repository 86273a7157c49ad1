"""The dashboard at ``/ui``: pages for people, made of what the public API answers.

It reads no database and knows no engine. Each page asks the API in this very process, with the
credential of whoever looks at it (docs/adr/0031), so that what a page shows and does is what its
reader may see and do.
"""
