"""Paceproxy: a forward HTTP proxy that paces outbound crawl traffic.

Public are the command `paceproxy`, the addon in `proxy_addon/addon.py`, the settings and the metrics; the modules
here are internal and may change in any release.
"""

__version__ = "0.1.0"
