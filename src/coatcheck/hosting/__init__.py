"""Puts the products that are on into a server and into a worker process."""
