"""Faults of Coatcheck's environment: poolers, disks, clocks, standbys, connections, blob stores.

These tests are not part of `make test`: they need programs and rights that not every machine has.
`make environment` installs the programs and runs them; tests whose needs are missing are skipped.
"""
