"""Faults of what Coatcheck stands on: poolers, disks, clocks, standbys, connections, blob stores.

Tests, but not of `make test`: they want programs and rights that not every machine has. `make
environment` installs the programs and runs them; what a machine lacks is skipped and said.
"""
