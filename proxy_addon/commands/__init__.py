"""The commands beside serving: `paceproxy run`, `paceproxy env` and their like; one module for each.

A command is a `click.Command` with the name `command`, in the module of its name, and its line in `COMMANDS`. It is
imported when it is used; mitmproxy, which takes half a second, where it runs. It takes the settings from its
`Invocation` (`@click.pass_obj`) and returns its exit code. What a command does, apart from reading its arguments and
printing, belongs to modules of its own.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from types import MappingProxyType

import click

from proxy_addon.setting_sources import Loaded, load

COMMANDS: Mapping[str, str] = MappingProxyType(
    {
        "run": "Run a command with a proxy of its own, and say in the end what came of it.",
        "health": "Ask a running proxy whether it is well, as a container's health check.",
        "env": "Print the variables by which clients find a proxy that runs, and trust it.",
        "status": "Show which hosts are slow, and why, at a proxy that runs.",
        "host": "Resume a host, pause it, or set its floor pace.",
        "doctor": "Say what stands between the clients of this shell and a URL.",
        "completion": "Print what completes the command's words in your shell.",
    }
)
"""What there is, with what it does in one line; in the order in which they are shown."""

_NONE: Mapping[str, object] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Invocation:
    """How a command was called: the flags that stand before its name, and the environment."""

    flags: Mapping[str, object]
    environ: Mapping[str, str]

    def load(self, *, flags: Mapping[str, object] = _NONE, defaults: Mapping[str, object] = _NONE) -> Loaded:
        """The settings by all their sources. Raises `SettingError`.

        `flags` are the command's own of the same names, and win; those that are None were not given. `defaults` take
        the place of the usual ones.
        """
        own = {name: value for name, value in flags.items() if value is not None}
        return load({**self.flags, **own}, self.environ, defaults)

    def load_beside(self, *, flags: Mapping[str, object] = _NONE) -> Loaded:
        """The settings of a proxy that runs already, for a command that asks it something.

        Whom it serves it may have been told by flags of its own, which are not known here: that is no open proxy.
        """
        return self.load(flags=flags, defaults={"allow": "0.0.0.0/0,::/0"})


class CommandError(click.ClickException):
    """A command cannot do its work. The message is one line: what is wrong, and what to do."""

    def __init__(self, message: str, exit_code: int = 2) -> None:
        super().__init__(message)
        self.code = exit_code


def find_command(name: str) -> click.Command | None:
    """Import the command of this name; None where there is none."""
    if name not in COMMANDS:
        return None
    command: click.Command = import_module(f"{__name__}.{name}").command
    command.short_help = COMMANDS[name]
    return command
