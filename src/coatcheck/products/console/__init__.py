"""The console API: all of an organisation's jobs, whichever surface they came by.

For people who look after jobs, and for what they use: the dashboard and the command line. It shows
the engine's own words, because it is about all surfaces at once.
"""
