"""The gateway: organisations call versioned services, synchronously or as jobs."""
