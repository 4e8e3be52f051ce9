"""`paceproxy completion SHELL`: what makes a shell complete the command's words, as click writes it."""

import click
from click.shell_completion import get_completion_class

_VARIABLE = "_PACEPROXY_COMPLETE"
"""As click derives it from the command's name: by it the shell's function asks for words."""


@click.command("completion", no_args_is_help=False)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def command(ctx: click.Context, shell: str) -> int:
    """Print what makes SHELL complete the flags, commands and values of paceproxy.

    \b
      source <(paceproxy completion bash)        in ~/.bashrc
      source <(paceproxy completion zsh)         in ~/.zshrc, after compinit
      paceproxy completion fish | source         in ~/.config/fish/config.fish

    The command is then run at each completion, which takes a fifth of a second.
    """
    root = ctx.find_root()
    kind = get_completion_class(shell)
    assert kind is not None, "click knows the three of them"
    click.echo(kind(root.command, {}, str(root.info_name), _VARIABLE).source())
    return 0
