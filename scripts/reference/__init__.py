"""Generates the reference documentation from the declarations in the code.

``make reference`` writes it; ``python -m scripts.reference --check`` only compares.
"""
