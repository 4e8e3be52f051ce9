"""HTTP/2 with origins: a repair of mitmproxy's client.

A request that is given up while it waits for a free stream is not sent any more. `tests/test_mitmproxy_api.py` fails
where an upgrade changes what this relies on.
"""

from mitmproxy.proxy import events
from mitmproxy.proxy.layer import CommandGenerator
from mitmproxy.proxy.layers.http._events import RequestProtocolError
from mitmproxy.proxy.layers.http._http2 import Http2Client


class PacedHttp2Client(Http2Client):
    """The origin's side."""

    def _handle_event(self, event: events.Event) -> CommandGenerator[None]:
        if isinstance(event, RequestProtocolError) and event.stream_id in self.stream_queue:
            del self.stream_queue[event.stream_id]  # Stock would send the request, only to reset it.
        else:
            yield from super()._handle_event(event)
