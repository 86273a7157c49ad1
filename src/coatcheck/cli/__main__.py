"""``python -m coatcheck.cli``: how ``up`` starts its own processes."""

from coatcheck.cli.entry import main

main()
