"""The status page: a folder of files, as they are, and what a browser may do with them.

They ask for nothing from elsewhere, and the browser is told to see to that. What they show comes from `events.py` and
`api.py`.
"""

import re
from importlib.resources import files
from pathlib import PurePath

from proxy_addon.admin.server import AdminHandler, Route

CONTENT_SECURITY_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "connect-src 'self'",
        "img-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        # What a host is called never becomes markup: the browser refuses to take any from a script.
        "require-trusted-types-for 'script'",
    )
)

_MEDIA_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


def page_routes() -> list[Route]:
    """The page at `/`, and each file of its folder under its own name."""
    routes = []
    for file in (files("proxy_addon.admin") / "page").iterdir():
        path, purpose = ("/", "the status page") if file.name == "index.html" else (f"/{re.escape(file.name)}", "")
        media_type = _MEDIA_TYPES.get(PurePath(file.name).suffix)
        if media_type is None:
            continue  # what an editor left there, say
        routes.append(Route(path, purpose, _FileHandler, {"body": file.read_bytes(), "media_type": media_type}))
    return routes


class _FileHandler(AdminHandler):
    def initialize(self, body: bytes, media_type: str) -> None:
        self._body = body
        self._media_type = media_type

    def get(self) -> None:
        self.set_header("Content-Type", self._media_type)
        self.set_header("Content-Security-Policy", CONTENT_SECURITY_POLICY)
        self.set_header("Referrer-Policy", "no-referrer")
        self.set_header("Cross-Origin-Opener-Policy", "same-origin")
        self.finish(self._body)

    head = get
