"""The batches scenario: a million tasks from an uploaded list to an export, and a scrape."""
