"""A mixed load on all five surfaces that goes on through every fault, and writes down what it saw.

It talks plain HTTP, without the clients of the product: those try again by themselves, and here
every single attempt has to be in the history.
"""

from chaos.load.load import SURFACES, Load

__all__ = ["SURFACES", "Load"]
