"""Builds the site of the documentation: the pages of docs/, and what is generated from the code."""
