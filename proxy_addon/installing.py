"""How the paced layer comes to where mitmproxy's own `HttpLayer` would be, or the connection is refused.

To be called from the addon's `next_layer` hook. What the layer does is in `layer.py`.
"""

import logging

from mitmproxy.master import Master
from mitmproxy.proxy import commands, events
from mitmproxy.proxy.layer import CommandGenerator, Layer, NextLayer
from mitmproxy.proxy.layers import ClientTLSLayer, ServerTLSLayer
from mitmproxy.proxy.layers.http import HttpLayer

from proxy_addon.dial import PacedConnectionHandler
from proxy_addon.exchange import Pacing
from proxy_addon.layer import PacedHttpLayer

logger = logging.getLogger(__name__)


def install(nextlayer: NextLayer, master: Master, pacing: Pacing) -> None:
    """Put our layer in place of mitmproxy's `HttpLayer`.

    Works before and after mitmproxy's own NextLayer addon has chosen. Where ours cannot be put, the connection is
    closed rather than served without pacing, and the error raised.
    """
    if nextlayer.layer is None:
        master.addons.get("nextlayer").next_layer(nextlayer)
    above: Layer | None = None
    found: Layer | None = nextlayer.layer
    while found is not None and type(found) is not HttpLayer:
        above, found = found, getattr(found, "child_layer", None)
    if not isinstance(found, HttpLayer):
        _let_tls_pass_alone(nextlayer)
        return
    context = found.context
    try:
        handler = master.addons.get("proxyserver").connections[context.client.id]
        if not isinstance(handler, PacedConnectionHandler):
            raise TypeError("the proxy listened before paced_connections() was entered")
        paced = PacedHttpLayer(context, found.mode, pacing, handler)
    except BaseException:
        nextlayer.layer = _Refuse(context)
        raise
    context.layers.remove(found)
    if above is None:
        nextlayer.layer = paced
    else:
        above.child_layer = paced  # type: ignore[attr-defined]


def _let_tls_pass_alone(nextlayer: NextLayer) -> None:
    """After CONNECT anything but TLS and HTTP would go to the origin unpaced: DNS, or what an option lets pass."""
    chosen, context = nextlayer.layer, nextlayer.context
    after_connect = any(isinstance(layer, HttpLayer) for layer in context.layers)
    if chosen is None or not after_connect or isinstance(chosen, ClientTLSLayer | ServerTLSLayer):
        return
    logger.info("A tunnel is closed: what came after CONNECT is neither TLS nor HTTP, and its port no tunnel port.")
    nextlayer.layer = _Refuse(context)


class _Refuse(Layer):
    """Closes the client's connection."""

    def _handle_event(self, event: events.Event) -> CommandGenerator[None]:
        yield commands.CloseConnection(self.context.client)
