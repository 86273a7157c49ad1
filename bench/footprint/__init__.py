"""The footprint scenario: what starting takes, and what idle processes hold in memory."""
