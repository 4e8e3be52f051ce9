"""`paceproxy run -- COMMAND …`: a command with a proxy of its own, and in the end what the waiting was good for."""

import asyncio
import os
import signal
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem

from proxy_addon.commands import CommandError, Invocation
from proxy_addon.setting_places import mask_credentials

if TYPE_CHECKING:
    from proxy_addon.bottom_line import BottomLine
    from proxy_addon.child import Child, Received, SignalWatch
    from proxy_addon.embedded import EmbeddedProxy
    from proxy_addon.settings import Settings

_ANY_PORT = "127.0.0.1:0"
_ORIGINS = "origins.pem"
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
_LOOK_S = 0.5
"""How often the progress is written anew: a countdown of seconds that does not seem to stand still."""


def _complete(_ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Programs on PATH that begin like this; where there is none, files."""
    names: set[str] = set()
    for folder in os.get_exec_path() if incomplete else ():
        # What is not there, is no folder or cannot be read is on many a PATH.
        with suppress(OSError), os.scandir(folder) as entries:
            names |= {one.name for one in entries if one.name.startswith(incomplete) and os.access(one.path, os.X_OK)}
    return [CompletionItem(name) for name in sorted(names)] or [CompletionItem(None, type="file")]


@click.command("run", context_settings={"allow_interspersed_args": False})
@click.option("--quiet", is_flag=True, help="Print neither progress nor summary.")
@click.argument(
    "arguments",
    metavar="COMMAND [ARGS]...",
    nargs=-1,
    required=True,
    type=click.UNPROCESSED,
    shell_complete=_complete,
)
@click.pass_obj
def command(invocation: Invocation, quiet: bool, arguments: tuple[str, ...]) -> int:
    """Run COMMAND with a proxy of its own on a free port, and end with its exit code.

    \b
      paceproxy run -- scrapy crawl shop
      paceproxy run curl -sS https://example.org/
      paceproxy --window 60 --store memory: run -- python crawl.py

    The command finds the proxy, and trusts it, by its environment. Settings stand before `run`. What is known of slow
    hosts is shared with the proxies that have the same store. Progress, on a terminal, and a summary go to standard
    error.
    """
    from proxy_addon import logs
    from proxy_addon.child import NotStartedError, SignalWatch

    signals = SignalWatch()
    # Before anything starts a thread.
    with signals.block(), _certificates(invocation.environ) as folder:
        defaults = {
            "listen": _ANY_PORT,
            "admin": _ANY_PORT,
            "log_level": "warning",
            "upstream_ca": str(folder / _ORIGINS),
        }
        loaded = invocation.load(defaults=defaults)
        _check(loaded.settings)
        logs.configure(loaded.settings.log_level)
        with loaded.named():
            try:
                return asyncio.run(_run(loaded.settings, arguments, invocation.environ, folder, signals, quiet=quiet))
            except NotStartedError as error:
                raise CommandError(str(error), error.exit_code) from error


def _check(settings: "Settings") -> None:
    """Refuse what would keep the command from using the proxy."""
    if settings.reverse is not None:
        raise CommandError(
            "reverse: a command finds its proxy by proxy variables; leave it out, or start paceproxy alone"
        )
    if settings.htpasswd is not None:
        raise CommandError("htpasswd: the command knows no password; leave it out, since only this machine has access")
    if settings.allow_networks and not any(ip_address("127.0.0.1") in network for network in settings.allow_networks):
        raise CommandError("allow: the command comes from 127.0.0.1, which it leaves out; add 127.0.0.0/8")


@contextmanager
def _certificates(environ: Mapping[str, str]) -> Iterator[Path]:
    """A folder for the command's bundle, with what the command would trust by itself in `_ORIGINS`."""
    from proxy_addon.ca_bundle import join, read_certificates, system_certificates, write_whole
    from proxy_addon.client_environment import own_bundles

    texts = [system_certificates()]
    for name, value in own_bundles(environ):
        try:
            text = read_certificates(Path(value))
        except OSError as error:
            _say(f"{name} names {value}, which cannot be read ({error.strerror or error}): it is left out")
            continue
        if not text:
            _say(f"{name} names {value}, which holds no certificates: it is left out")
        texts.append(text)
    with ExitStack() as undo:
        with _temporary_files():
            # The command may have put something there that only another user can remove.
            made = tempfile.TemporaryDirectory(prefix="paceproxy-run-", ignore_cleanup_errors=True)
            folder = Path(undo.enter_context(made))
            # Certificates are no secret, and the command may become another user.
            folder.chmod(0o755)
            write_whole(folder / _ORIGINS, join(texts))
        yield folder


@contextmanager
def _temporary_files() -> Iterator[None]:
    """What happens to files meanwhile is told as what it is."""
    try:
        yield
    except OSError as error:
        raise CommandError(
            f"a folder for temporary files is needed: {error.strerror or error}; make room in /tmp,"
            " or name a folder that is by the variable TMPDIR"
        ) from error


async def _run(
    settings: "Settings",
    arguments: Sequence[str],
    environ: Mapping[str, str],
    folder: Path,
    signals: "SignalWatch",
    *,
    quiet: bool,
) -> int:
    from proxy_addon.bottom_line import BottomLine
    from proxy_addon.child import Child
    from proxy_addon.crawl_summary import Tally
    from proxy_addon.embedded import embedded

    tally = Tally()
    with BottomLine() as line:
        course = _Course(line)
        with signals.told_to(course.receive):
            try:
                async with embedded(settings, [tally.observe]) as proxy:
                    course.child = Child(arguments, _environment(proxy, environ, folder), mask=signals.mask)
                    serving = asyncio.create_task(proxy.run())
                    if not quiet:
                        _greet(proxy, environ)
                        showing = asyncio.create_task(_show(proxy, line, course.resized))
                        serving.add_done_callback(lambda _: showing.cancel())
                    code = await course.child.wait()
                    line.hide()
                    await proxy.drain(course.enough)
                    snapshot = proxy.snapshot()
                    proxy.shutdown()
                    await serving
            except asyncio.CancelledError:
                if course.gave_up_by is None:
                    raise
                return 128 + course.gave_up_by
    if not quiet:
        lines = tally.lines(snapshot, forgive_after_s=settings.forgive_after)
        if not tally.requests:
            lines = [f"{lines[0]}; does the command read HTTP_PROXY?{_no_proxy(environ)}"]
        for one in lines:
            _say(one)
    return code


class _Course:
    """What signals do: before the command runs they end the start, then they are the command's, then they end us."""

    def __init__(self, line: "BottomLine") -> None:
        self.child: Child | None = None
        self.enough = asyncio.Event()
        """The drain has taken long enough."""
        self.resized = asyncio.Event()
        """The terminal has another size."""
        self.gave_up_by: int | None = None
        """The signal that ended the start."""
        self._line = line
        self._starting = asyncio.current_task()

    def receive(self, received: "Received") -> None:
        from proxy_addon.child import stop_as_told

        if received.number == signal.SIGWINCH:
            self.resized.set()
        if received.number == signal.SIGTSTP:
            # Before we stop: the shell's prompt is next.
            self._line.hide()
        if self.child is not None:
            self.child.tell(received)
        if received.number == signal.SIGTSTP:
            stop_as_told()
        elif received.number not in _ENDING or signal.getsignal(received.number) is signal.SIG_IGN:
            # nohup has us ignore SIGHUP, and a shell without job control SIGINT for what it starts with `&`.
            return
        elif self.child is None:
            assert self._starting is not None
            self.gave_up_by = received.number
            self._starting.cancel()
        elif self.child.ended:
            self.enough.set()


async def _show(proxy: "EmbeddedProxy", line: "BottomLine", resized: asyncio.Event) -> None:
    """Keep the progress on the line. Until cancelled."""
    from proxy_addon.crawl_summary import progress

    while True:
        line.show(progress(proxy.snapshot()))
        with suppress(TimeoutError):
            # At once, before the command writes over where the line was.
            await asyncio.wait_for(resized.wait(), _LOOK_S)
        resized.clear()


def _environment(proxy: "EmbeddedProxy", environ: Mapping[str, str], folder: Path) -> dict[str, str]:
    """What the command gets: the user's, and what leads to the proxy."""
    from proxy_addon.announcement import local_url, preferred
    from proxy_addon.ca_bundle import BUNDLE_NAME, join, own_certificate, write_whole
    from proxy_addon.client_environment import client_environment

    bundle = folder / BUNDLE_NAME
    text = join([(folder / _ORIGINS).read_text(encoding="ascii"), own_certificate(proxy.confdir)])
    with _temporary_files():
        write_whole(bundle, text)
    return {**environ, **client_environment(local_url(preferred(proxy.addresses)), str(bundle))}


def _greet(proxy: "EmbeddedProxy", environ: Mapping[str, str]) -> None:
    from proxy_addon.announcement import local_url
    from proxy_addon.client_environment import own_proxies

    if proxy.admin_address is not None:
        _say(f"status at {local_url(proxy.admin_address)}/")
    if proxy.settings.upstream is None:
        for name, value in own_proxies(environ):
            _say(f"{name} is {mask_credentials(value)}, which the proxy does not go through; --upstream is for that")


def _no_proxy(environ: Mapping[str, str]) -> str:
    for name in ("NO_PROXY", "no_proxy"):
        if value := environ.get(name):
            return f" {name} is {value}"
    return ""


def _say(line: str) -> None:
    printable = "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in line)
    # Nobody reads it any more, or its disk is full: the command must go on all the same, and its exit code counts.
    # Past Python's buffer, which would try once more at the end of the process, and then change the exit code.
    if sys.stderr is not None:
        with suppress(OSError):
            os.write(2, f"paceproxy: {printable}\n".encode())
