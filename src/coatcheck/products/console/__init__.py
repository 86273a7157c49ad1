"""The console API: all of an organisation's jobs, whichever product they belong to.

It serves people who manage jobs, through the dashboard and the command line. It shows the engine's
states rather than a product's statuses, because it covers all products at once.
"""
