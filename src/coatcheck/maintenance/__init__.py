"""The loops that move jobs on when nobody holds them, each run by one replica at a time."""

from coatcheck.maintenance.runner import MaintenanceRunner

__all__ = ["MaintenanceRunner"]
