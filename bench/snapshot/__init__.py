"""The snapshot scenario: claims behind a long history while somebody holds a snapshot."""
