"""The dashboard scenario: page times with a short and with a long history."""
