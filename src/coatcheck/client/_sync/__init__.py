"""The client for programs without asyncio, made from ``_async``.

Do not edit it: edit ``_async``, and run scripts/generate_sync_client.
"""
