"""The admin address of a proxy, put together from its parts."""

from collections.abc import Callable, Mapping

from proxy_addon.admin.api import Operations, api_routes, nothing_else_route
from proxy_addon.admin.documents import Document, status_document
from proxy_addon.admin.events import StatusFeed, event_route
from proxy_addon.admin.history import History
from proxy_addon.admin.probes import probe_routes
from proxy_addon.admin.server import AdminServer
from proxy_addon.admin.status_page import page_routes
from proxy_addon.clock import Clock
from proxy_addon.setting_tokens import read_token
from proxy_addon.settings import Settings


def assemble(
    settings: Settings,
    clock: Clock,
    operations: Operations,
    history: History,
    *,
    about: Callable[[], Mapping[str, object]],
    expose: Callable[[str], tuple[bytes, str]],
    not_ready: Callable[[], str | None],
) -> AdminServer:
    """A server that can be started.

    `about` says what there is to say of the process; `expose` gives the metrics and their media type for an `Accept`
    field; `not_ready` says why the proxy should be sent no request now, and None when it should.
    """

    def status() -> Document:
        now = operations.snapshot()
        return status_document(now, about=about(), recent=history.document(now=now.at))

    feed = StatusFeed(status, clock)
    return AdminServer(
        [
            *page_routes(),
            *api_routes(status, operations),
            event_route(feed),
            *probe_routes(expose, not_ready),
            nothing_else_route(),
        ],
        names=settings.admin_names,
        token=None if settings.admin_token_file is None else read_token(settings.admin_token_file),
        on_stop=feed.close,
    )
