"""The HTTP scenario: Coatcheck's server compared with minimal servers for the same request."""
