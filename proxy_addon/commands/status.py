"""`paceproxy status`: which hosts are slow and why, asked of a proxy that runs."""

import json
import queue
import threading

import click

from proxy_addon.admin_client import AdminClient, AdminError, StatusShown, client_of
from proxy_addon.clock import SystemClock
from proxy_addon.commands import CommandError, Invocation

_NO_ANSWER = 1
_REDRAW_S = 1.0
"""The countdowns go by seconds."""


@click.command("status")
@click.option("--watch", is_flag=True, help="Show it anew whenever it changes, until Ctrl-C.")
@click.option("--json", "as_json", is_flag=True, help="Print the slow hosts as a JSON list; with --watch one a line.")
@click.option("--admin", metavar="HOST:PORT", help="The proxy's admin address; else by the settings.")
@click.pass_obj
def command(invocation: Invocation, watch: bool, as_json: bool, admin: str | None) -> int:
    """Show which hosts are slow: rung and pace, who waits, when the next slot is, the last stall and why.

    \b
      paceproxy status
      paceproxy status --watch
      paceproxy status --json | jq '.[] | select(.waiting > 10) | .host'

    Exit code 1 if no proxy answers.
    """
    loaded = invocation.load_beside(flags={"admin": admin})
    with loaded.named():
        client = client_of(loaded.settings)
    try:
        if as_json:
            _print_json(client, watch=watch)
        elif watch:
            _watch(client)
        else:
            _print(client)
    except AdminError as error:
        raise CommandError(str(error), _NO_ANSWER) from error
    except KeyboardInterrupt:
        if not watch:
            raise
    return 0


def _print_json(client: AdminClient, *, watch: bool) -> None:
    if not watch:
        click.echo(json.dumps(client.hosts(), indent=2))
        return
    for event in client.events():
        client.read_event(event)
        click.echo(json.dumps(json.loads(event)["hosts"]))


def _print(client: AdminClient) -> None:
    from rich.console import Console

    from proxy_addon.status_text import plain_console, status_view

    status = client.status()
    plain_console(Console(highlight=False)).print(status_view(status, now=status.at))


def _watch(client: AdminClient) -> None:
    from rich.console import Console
    from rich.live import Live

    from proxy_addon.status_text import plain_console, status_view

    console = plain_console(Console(highlight=False))
    changes = _Changes(client)
    if not console.is_terminal:
        while True:
            status = changes.next(None)
            assert status is not None, "without a time-out there is always one"
            console.print(status_view(status, now=status.at))
    clock = SystemClock()
    with Live(console=console, auto_refresh=False) as live:
        status = None
        while True:
            changed = changes.next(_REDRAW_S)
            if changed is not None:
                # Between two changes the time goes on by our clock, which may differ from the proxy's.
                status, since = changed, clock.monotonic()
            if status is not None:
                live.update(status_view(status, now=status.at + clock.monotonic() - since), refresh=True)


class _Changes:
    """Reads the events in a thread of its own, which ends with the process: a socket cannot be read with a time-out
    that may pass several times."""

    def __init__(self, client: AdminClient) -> None:
        self._client = client
        self._queue: queue.Queue[StatusShown | Exception] = queue.Queue()
        threading.Thread(target=self._read, name="events", daemon=True).start()

    def next(self, timeout_s: float | None) -> StatusShown | None:
        """The next status; None if there is none within the time. Raises `AdminError`."""
        try:
            item = self._queue.get(timeout=timeout_s)
        except queue.Empty:
            return None
        if isinstance(item, Exception):
            raise item
        return item

    def _read(self) -> None:
        try:
            for event in self._client.events():
                self._queue.put(self._client.read_event(event))
        except Exception as error:  # whatever it is, who waits for the next must hear of it
            self._queue.put(error)
