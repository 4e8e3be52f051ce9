"""Whole crawls on real sockets, in scaled time: Paceproxy, and the crawlers and proxies that people use, on every site.

`python -m tests.crawls` runs them; README.md beside this file says what the runs and their columns mean.
"""
