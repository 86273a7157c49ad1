"""The client as it is written. ``_sync`` is made from it by ``scripts/generate_sync_client``."""
