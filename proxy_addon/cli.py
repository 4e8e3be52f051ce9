"""The command `paceproxy`: arguments become `Settings`, and those a running proxy; what goes wrong, one line.

Its flags come from the declarations in `settings.py`, its commands from `commands/`. Exit codes: the proxy's or the
command's own; 2 for a setting or an argument that cannot be used. What the proxy does is in `runner.py`, which is
imported only when it is needed.
"""

import os
import signal
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import click
from click.shell_completion import CompletionItem

from proxy_addon import __version__
from proxy_addon.commands import COMMANDS, CommandError, Invocation, find_command
from proxy_addon.setting_about import Group
from proxy_addon.setting_docs import by_group
from proxy_addon.setting_kinds import Choice, Kind, Switch
from proxy_addon.setting_lists import Options
from proxy_addon.setting_places import Folder, NewFile, ReadableFile, mask_credentials
from proxy_addon.setting_sources import CONFIG, flag, suggestion, variable
from proxy_addon.settings import SETTINGS, SettingError, Settings

BAD_USAGE = 2
INTERRUPTED = 130
"""As a shell reports a command that SIGINT ended: 128 + 2."""

_PROGRAM = "paceproxy"
_HELP_WIDTH = 100
_HELP_COLUMN = 24
"""Leaves room for the longest default on a line of 80 characters."""

_INTRODUCTION = """\
A forward HTTP proxy that paces outbound crawl traffic: a site that cannot keep up makes the crawl slower instead of
making it fail.

\b
  paceproxy run -- scrapy crawl shop       a crawler with a proxy of its own
  paceproxy                                serve on 127.0.0.1:8080
  paceproxy --window 60                    give every request a minute
  paceproxy --listen :8080 --allow 10.0.0.0/8
  paceproxy --upstream http://user:password@parent:3128

\b
  eval "$(paceproxy env)"                  let this shell's clients use it
  curl https://example.org/

Each flag is also an environment variable (--attempt-timeout is PACE_ATTEMPT_TIMEOUT) and a key of the file that
--config names (attempt_timeout). A flag wins over a variable, that over the file. An empty variable counts as not
set. SECONDS are decimal; BYTES may have a suffix, as in 64k or 1m.
"""

_FILES = [CompletionItem(None, type="file")]
_FOLDERS = [CompletionItem(None, type="dir")]
"""The shell looks for them itself."""

type Serve = Callable[[Settings], int]


def main(
    args: Sequence[str] | None = None, *, environ: Mapping[str, str] | None = None, serve: Serve | None = None
) -> int:
    """Run the command and return its exit code. `args` None: the process's own, as with `environ`."""
    command = _command(os.environ if environ is None else environ, serve or _serve)
    try:
        code = command.main(args=args, prog_name=_PROGRAM, standalone_mode=False)
    except SettingError as error:
        return _refuse(str(error))
    except CommandError as error:
        return _refuse(error.message, error.code)
    except click.NoSuchOption as error:
        if error.ctx is not None and error.ctx.parent is not None and error.option_name in _flags(command):
            place = f"{_PROGRAM} {error.option_name} … {error.ctx.info_name}"
            return _refuse(f"{error.option_name} is a setting, and stands before the command: {place}")
        return _refuse(f"{error.option_name} is no flag; {_suggest_flag(error, command)}")
    except click.UsageError as error:
        return _refuse(f"{error.format_message().rstrip('.')}; {_see_help(error)}")
    except click.ClickException as error:
        return _refuse(f"{error.format_message().rstrip('.')}; {_see_help()}")
    except click.Abort:
        return INTERRUPTED
    return int(code)


class _Group(click.Group):
    """Imports a command when it is used. Shows the flags under the headings of their groups."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return find_command(cmd_name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in COMMANDS and not ctx.resilient_parsing:
            # Perhaps a URL that lost its flag, with a password in it.
            shown = mask_credentials(args[0])
            raise CommandError(f"{shown} is no command; {suggestion(shown, COMMANDS, _see_help())}")
        return super().resolve_command(ctx, args)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        records = {parameter.opts[0]: parameter.get_help_record(ctx) for parameter in self.get_params(ctx)}
        for group, names in by_group().items():
            if group is Group.PROCESS:
                names = [CONFIG, *names, "version", "help"]
            shown = [record for name in names if (record := records[flag(name)])]
            with formatter.section(group):
                formatter.write_dl(shown, col_max=_HELP_COLUMN)
        # Without importing any of them.
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()), col_max=_HELP_COLUMN)


def _command(environ: Mapping[str, str], serve: Serve) -> click.Group:
    @click.pass_context
    def run(ctx: click.Context, /, **values: object) -> int:
        flags = {str(name): value for name, value in values.items() if value not in (None, ())}
        ctx.obj = Invocation(flags, environ)
        if ctx.invoked_subcommand is not None:
            return 0
        loaded = ctx.obj.load()
        with loaded.named():
            return serve(loaded.settings)

    return _Group(
        name=_PROGRAM,
        callback=run,
        params=list(_parameters()),
        help=_INTRODUCTION,
        invoke_without_command=True,
        context_settings={"max_content_width": _HELP_WIDTH, "help_option_names": ["--help"]},
    )


def _parameters() -> Iterable[click.Parameter]:
    yield click.Option(
        [flag(CONFIG)],
        metavar="FILE",
        help=f"Read settings from this YAML file; also {variable(CONFIG)}.",
        shell_complete=lambda _ctx, _parameter, _incomplete: _FILES,
    )
    for name, about in SETTINGS.items():
        # A long list of names may be broken.
        default = about.default.replace(",", ", ")
        text = f"{about.help}  [default: {default}]" if default else about.help
        if isinstance(about.kind, Switch):
            yield click.Option([f"{flag(name)}/--no-{flag(name)[2:]}", name], default=None, help=text)
        else:
            multiple = isinstance(about.kind, Options)
            yield click.Option(
                [flag(name), name],
                metavar=about.kind.metavar,
                multiple=multiple,
                help=text,
                shell_complete=_completer(about.kind),
            )
    yield click.Option(
        ["--version"],
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=_print_version,
        help="Print the version and exit.",
    )


def _completer(kind: Kind[Any]) -> Callable[[click.Context, click.Parameter, str], list[CompletionItem]]:
    """What a shell offers as the value of such a setting."""

    def complete(_ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
        match kind:
            case Choice(choices):
                return [CompletionItem(choice) for choice in choices if choice.startswith(incomplete)]
            case ReadableFile() | NewFile():
                return _FILES
            case Folder():
                return _FOLDERS
            case _:
                return []

    return complete


def _print_version(ctx: click.Context, _parameter: click.Parameter, given: bool) -> None:
    if given and not ctx.resilient_parsing:
        click.echo(f"{_PROGRAM} {__version__}")
        ctx.exit()


def _serve(settings: Settings) -> int:
    # Nothing has begun yet, and nothing has to be undone.
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    # Takes half a second, which --help and a typing error need not.
    from proxy_addon import runner

    return runner.serve(settings)


def _suggest_flag(error: click.NoSuchOption, command: click.Command) -> str:
    names = _flags(error.ctx.command if error.ctx else command)
    return suggestion(error.option_name, names, _see_help(error))


def _flags(command: click.Command) -> list[str]:
    return [name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)]


def _see_help(error: click.UsageError | None = None) -> str:
    return f"see {error.ctx.command_path if error and error.ctx else _PROGRAM} --help"


def _refuse(line: str, exit_code: int = BAD_USAGE) -> int:
    click.echo(f"{_PROGRAM}: {' '.join(line.split())}", err=True)
    return exit_code
