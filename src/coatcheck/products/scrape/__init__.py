"""The service ``scrape``: pages fetched as jobs, their bodies kept as artifacts."""
