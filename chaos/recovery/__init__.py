"""How long it takes until work goes on: after a worker's death, and after the database's.

``python -m chaos.recovery --help``
"""
