"""``python -m coatcheck.cli``: how ``up`` starts its child processes."""

from coatcheck.cli.entry import main

main()
