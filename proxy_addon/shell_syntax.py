"""How environment variables are set in a shell, in a file for Docker, and in a manifest for Kubernetes.

What the variables are is in `client_environment.py`.
"""

import json
import shlex
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class Syntax:
    """One way to set variables. A comment begins with `#` in all of them."""

    use: str
    """How what is printed is put to use; {command} stands for the command that printed it."""
    setting: Callable[[str, str], str]
    """The lines that set a variable to a value."""
    before: str = ""
    """What stands once before all of them."""
    elsewhere: bool = False
    """The variables are for a container: files and loopback addresses there are not those here."""

    def write(self, variables: Mapping[str, str], comments: Iterable[str]) -> str:
        lines = [f"# {comment}" for comment in comments]
        if self.before:
            lines.append(self.before)
        return "\n".join(lines + [self.setting(name, value) for name, value in variables.items()])


def _sh(name: str, value: str) -> str:
    return f"export {name}={shlex.quote(value)}"


def _fish(name: str, value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"set -gx {name} '{escaped}'"


def _powershell(name: str, value: str) -> str:
    # It takes typographic quotation marks for straight ones.
    doubled = "".join(char * 2 if char in "'\u2018\u2019\u201a\u201b" else char for char in value)
    return f"$env:{name} = '{doubled}'"


def _env_file(name: str, value: str) -> str:
    # Docker takes the rest of the line as it is; there is no way to write a line break.
    if "\n" in value or "\r" in value:
        raise ValueError(f"{name} holds a line break, which no file for docker --env-file can hold")
    return f"{name}={value}"


def _kubernetes(name: str, value: str) -> str:
    # Kubernetes replaces $(NAME) in values. What is a string in JSON is the same one in YAML.
    return f"  - name: {name}\n    value: {json.dumps(value.replace('$', '$$'))}"


SYNTAXES: Mapping[str, Syntax] = MappingProxyType(
    {
        "sh": Syntax('eval "$({command})"', _sh),
        "fish": Syntax("{command} | source", _fish),
        "powershell": Syntax("{command} | Out-String | Invoke-Expression", _powershell),
        "docker": Syntax("{command} > FILE, then docker run --env-file FILE …", _env_file, elsewhere=True),
        "k8s": Syntax(
            "paste it into the crawler's container in the manifest", _kubernetes, before="env:", elsewhere=True
        ),
    }
)
