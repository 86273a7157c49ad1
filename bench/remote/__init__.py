"""The remote scenario: many remote executions in flight, managed by one small worker."""
