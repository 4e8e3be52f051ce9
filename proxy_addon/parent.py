"""What a stream needs of the layer that made it."""

from typing import TYPE_CHECKING, Protocol

from mitmproxy.proxy.layer import CommandGenerator
from mitmproxy.proxy.layers.http import GetHttpConnection

from proxy_addon.dial import PacedConnectionHandler
from proxy_addon.exchange import Pacing
from proxy_addon.model import Reply
from proxy_addon.origins import Origin

if TYPE_CHECKING:
    from proxy_addon.border import Border


class Parent(Protocol):
    """See the module's text."""

    pacing: Pacing
    handler: PacedConnectionHandler

    def arm(self, stream: "Border", when: float) -> None:
        """Send it a `Deadline` at this monotonic time, unless it has changed its `deadline` by then."""

    def start_attempt(self, stream: "Border") -> int:
        """A fresh stream id for what goes to an origin and comes back from there."""

    def end_attempt(self, stream: "Border") -> None:
        """What still comes for its `attempt_id` goes nowhere."""

    def find_origin(self, wanted: GetHttpConnection, *, method: str, fresh: bool) -> Origin | None:
        """An open connection that this request may use."""

    def let_idle_go(self, address: tuple[str, int]) -> CommandGenerator[None]:
        """Close the connections to there that nobody uses: a request is about to wait, and to a host that cannot keep
        up each of them is a place in its pool. (One of HTTP/2 is shared with others, and stays.)"""

    def dropped(self, stream: "Border") -> None:
        """It has ended. Once nothing of it runs any more, it is to `come_apart`."""

    def stop_origin(self, stream: "Border") -> None:
        """Read no more of its response until its client has taken what there is."""

    def queued_for_client(self, stream_id: int) -> int:
        """How many bytes wait for an HTTP/2 client to give the stream a window."""

    def abandon_dial(self, stream: "Border", failure: Reply) -> CommandGenerator[None]:
        """Let the stream go on with this failure. The dial itself ends, unless others wait for it too."""
