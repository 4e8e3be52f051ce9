"""The admin address: metrics and probes, a JSON API, live events and the status page.

`server.py` listens and answers only to the names that are expected; the other modules are what it answers. Nothing
here decides about a request of the crawl.
"""
