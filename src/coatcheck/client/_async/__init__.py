"""The async client. ``scripts/generate_sync_client`` generates ``_sync`` from it."""
