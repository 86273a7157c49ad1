"""Every named crash point, with each victim that can be struck there.

The scenarios are those of ``tests/e2e``, which ``make test`` runs once with the process as the
victim. Here they are run with all of them, and a table says what came of each.
"""
