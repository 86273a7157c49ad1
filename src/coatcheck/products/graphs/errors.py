"""The errors of the graphs API."""

from __future__ import annotations

from coatcheck.domain.errors import NotInstalled


class GraphsNotInstalled(NotInstalled):
    """The package that analyses code is not installed. Its text says what to install."""

    code = "graphs_not_installed"
