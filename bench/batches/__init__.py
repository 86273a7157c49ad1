"""The batches scenario: a million tasks from a staged list to an export, and a scrape."""
