// A connection's options from redis-py's form of a unix socket's address.

export function connectionOptions(address) {
  return { path: address.replace(/^unix:\/\//, ""), maxRetriesPerRequest: null };
}
