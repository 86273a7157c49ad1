"""The engine: submit, get, wait, cancel, list. HTTP surfaces stand on it and nothing else."""

from coatcheck.engine.engine import Engine, Health
from coatcheck.engine.submission import Submission, Ticket

__all__ = ["Engine", "Health", "Submission", "Ticket"]
