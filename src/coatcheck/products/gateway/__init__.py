"""The gateway: organisations call versioned services over HTTP, synchronously or as jobs."""
