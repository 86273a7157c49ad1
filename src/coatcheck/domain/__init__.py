"""The job model: states, outcomes, limits, ids. Pure: no I/O, no clock reads."""
