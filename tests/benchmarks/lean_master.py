"""mitmproxy's Master with the four addons that a proxy cannot do without, and no pacing: what ours is measured by.

    lean_master.py CONFDIR

It prints where it listens, and ends with SIGTERM.
"""

import asyncio
import signal
import sys

from mitmproxy import master, options
from mitmproxy.addons import core, next_layer, proxyserver, tlsconfig


class Announcement:
    def __init__(self, listeners: proxyserver.Proxyserver) -> None:
        self._listeners = listeners

    def running(self) -> None:
        host, port = self._listeners.listen_addrs()[0][:2]
        sys.stdout.write(f"proxy listening at http://{host}:{port}\n")
        sys.stdout.flush()


async def main(confdir: str) -> None:
    proxy = master.Master(options.Options())
    listeners = proxyserver.Proxyserver()
    proxy.addons.add(core.Core(), listeners, next_layer.NextLayer(), tlsconfig.TlsConfig())
    proxy.addons.add(Announcement(listeners))
    proxy.options.update(
        confdir=confdir,
        connection_strategy="lazy",
        http2=False,
        http3=False,
        listen_host="127.0.0.1",
        listen_port=0,
    )
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, proxy.shutdown)
    await proxy.run()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
