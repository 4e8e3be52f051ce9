"""What Prometheus and probes ask for: `/metrics`, `/healthz` and `/readyz`.

Counting belongs to `metrics.py`.
"""

from collections.abc import Callable
from http import HTTPStatus

from proxy_addon.admin.server import AdminHandler, Route


def probe_routes(expose: Callable[[str], tuple[bytes, str]], not_ready: Callable[[], str | None]) -> list[Route]:
    """The three of them.

    `expose` gives the metrics and their media type for an `Accept` field. `not_ready` says why the proxy
    should be sent no request now, and None when it should.
    """
    return [
        Route("/metrics", "metrics for Prometheus", _MetricsHandler, {"expose": expose}),
        Route("/healthz", "200 while the process lives", _HealthHandler),
        Route("/readyz", "200 while the proxy takes requests, else 503", _ReadyHandler, {"not_ready": not_ready}),
    ]


class _MetricsHandler(AdminHandler):
    def initialize(self, expose: Callable[[str], tuple[bytes, str]]) -> None:
        self._expose = expose

    def get(self) -> None:
        body, media_type = self._expose(self.request.headers.get("Accept", ""))
        self.set_header("Content-Type", media_type)
        self.set_header("Vary", "Accept")
        self.finish(body)

    head = get


class _HealthHandler(AdminHandler):
    def get(self) -> None:
        self.answer(HTTPStatus.OK, "alive")

    head = get


class _ReadyHandler(AdminHandler):
    def initialize(self, not_ready: Callable[[], str | None]) -> None:
        self._not_ready = not_ready

    def get(self) -> None:
        reason = self._not_ready()
        if reason is None:
            self.answer(HTTPStatus.OK, "ready")
        else:
            self.answer(HTTPStatus.SERVICE_UNAVAILABLE, f"not ready: {reason}")

    head = get
