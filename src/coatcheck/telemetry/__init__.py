"""What the processes say about themselves: log lines and metrics. Never payloads, never secrets."""
