"""One module per scenario: each takes a contender's client and returns one round's figures."""
