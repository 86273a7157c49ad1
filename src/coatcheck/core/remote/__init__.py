"""Jobs that a remote service runs: spawned once, polled, finalized once."""
