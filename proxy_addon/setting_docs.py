"""The settings as the documentation shows them: the table of the README and the commented YAML file.

`python -m proxy_addon.setting_docs table` prints the one, `yaml` in its place the other. `tests/test_docs.py` fails
when that is due.
"""

import sys
import textwrap
from collections.abc import Sequence

import click

from proxy_addon.setting_about import About, Group
from proxy_addon.setting_sources import flag
from proxy_addon.settings import SETTINGS, Settings

_YAML_HEAD = """\
# The settings of Paceproxy, all at their defaults: take out the # before a line to change it.
# Use with `paceproxy --config paceproxy.yaml`. Flags and PACE_ variables win over this file.
# Durations are decimal seconds. Sizes are bytes, or have a suffix: 64k, 1m. Relative paths start at the folder in
# which paceproxy is started.
"""


def usage(name: str) -> str:
    """A setting's flag with what follows it: `--window SECONDS`."""
    return f"{flag(name)} {SETTINGS[name].kind.metavar}".rstrip()


def table() -> str:
    """The README's tables in Markdown, one for each group."""
    parts = []
    for group, names in by_group().items():
        rows = [f"| `{usage(name)}` | {_cell(SETTINGS[name])} | {SETTINGS[name].help} |" for name in names]
        parts.append("\n".join([f"**{group}**", "", "| flag | default | what it does |", "|---|---|---|", *rows]))
    return "\n\n".join(parts)


def yaml() -> str:
    """`config/paceproxy.yaml`: every setting, its default commented out."""
    parts = [_YAML_HEAD]
    for group, names in by_group().items():
        parts.append(f"\n# --- {group} ---\n")
        for name in names:
            about = SETTINGS[name]
            comment = textwrap.fill(
                about.help, width=118, initial_indent="# ", subsequent_indent="# ", break_on_hyphens=False
            )
            parts.append(f"\n{comment}\n#{name}: {_yaml_default(name, about)}".rstrip() + "\n")
    return "".join(parts)


def by_group() -> dict[Group, list[str]]:
    """The names of the settings, in the order of their declaration."""
    return {group: [name for name, about in SETTINGS.items() if about.group is group] for group in Group}


def _cell(about: About) -> str:
    # Room to break a long list of names.
    return f"`{about.default.replace(',', ', ')}`" if about.default else "none"


def _yaml_default(name: str, about: About) -> str:
    default = Settings.model_fields[name].default
    return about.kind.yaml(default) if isinstance(default, tuple | frozenset) else about.default


def main(args: Sequence[str]) -> int:
    """Print what the one argument names."""
    shapes = {"table": table, "yaml": yaml}
    if len(args) != 1 or args[0] not in shapes:
        click.echo("usage: python -m proxy_addon.setting_docs table|yaml", err=True)
        return 2
    click.echo(shapes[args[0]]().rstrip("\n"))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
