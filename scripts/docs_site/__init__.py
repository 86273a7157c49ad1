"""Builds the documentation site: the pages of docs/, and pages generated from the code."""
