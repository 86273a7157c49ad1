"""Maintenance loops: periodic work that no request waits for. One process at a time runs each."""

from coatcheck.maintenance.runner import MaintenanceRunner

__all__ = ["MaintenanceRunner"]
