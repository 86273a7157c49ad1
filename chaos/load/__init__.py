"""A mixed load on all five products that continues through every fault, and records what it sees.

It uses plain HTTP, not Coatcheck's clients: those retry by themselves, but every single attempt
must be in the history.
"""

from chaos.load.load import SURFACES, Load

__all__ = ["SURFACES", "Load"]
