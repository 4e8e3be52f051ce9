"""Where settings come from: flags, the environment, a YAML file; or the options of a user's own mitmproxy.

A flag wins over the environment, that over the file, that over the default. Only the value that wins is looked at;
but a name that no setting has is an error wherever it stands, or a typing error would be a setting that does nothing.
"""

import difflib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NoReturn, Optional

from proxy_addon.setting_kinds import Count, Switch, to_text
from proxy_addon.setting_lists import Options
from proxy_addon.settings import SETTINGS, SettingError, Settings

if TYPE_CHECKING:
    from mitmproxy.addonmanager import Loader
    from mitmproxy.optmanager import OptManager

PREFIX = "PACE_"
CONFIG = "config"
"""The file's own name: a flag and a variable, but no setting."""
RESERVED_VARIABLES: frozenset[str] = frozenset()
"""Variables with our prefix that are no settings, and are let through."""
DEFAULT = "the default"

_OWN_OF_MITMPROXY = {
    "listen": "listen_host and listen_port",
    "htpasswd": "proxyauth",
    "http2": "http2",
    "upstream": "mode and upstream_auth",
    "reverse": "mode",
    "upstream_ca": "ssl_verify_upstream_trusted_ca",
    "ssl_insecure": "ssl_insecure",
    "confdir": "confdir",
    "drain": "the command paceproxy, because mitmproxy drops what is in hand",
    "set": "--set",
    "log_level": "termlog_verbosity",
}
"""Settings of our runner. A user's own mitmproxy has one of its own: what to use there instead."""


@dataclass(frozen=True, slots=True)
class Given:
    """A value as the user gave it, and where."""

    value: object
    source: str


@dataclass(frozen=True, slots=True)
class Loaded:
    """The settings, and where those that are not at their defaults come from."""

    settings: Settings
    sources: Mapping[str, str]

    def source(self, name: str) -> str:
        return self.sources.get(name, DEFAULT)

    @contextmanager
    def named(self) -> Iterator[None]:
        """Say of a setting that only shows itself to be wrong when it is used where it came from."""
        try:
            yield
        except SettingError as error:
            # A port in use, a store that cannot be opened.
            error.source = error.source or self.source(error.setting)
            raise


def flag(name: str) -> str:
    """A setting's flag: `--attempt-timeout`."""
    return f"--{name.replace('_', '-')}"


def variable(name: str) -> str:
    """A setting's environment variable: `PACE_ATTEMPT_TIMEOUT`."""
    return f"{PREFIX}{name.upper()}"


def option(name: str) -> str:
    """A setting's mitmproxy option: `pace_attempt_timeout`."""
    return f"pace_{name}"


def suggestion(name: str, spellings: Iterable[str], otherwise: str) -> str:
    """What to do about a name that is not known: the nearest of the spellings that are, or `otherwise`."""
    known = {_bare(spelling): spelling for spelling in spellings}
    near = difflib.get_close_matches(_bare(name), known, n=1)
    return f"did you mean {known[near[0]]}?" if near else otherwise


def load(
    flags: Mapping[str, object], environ: Mapping[str, str], defaults: Mapping[str, object] = MappingProxyType({})
) -> Loaded:
    """The settings by all their sources. `flags`: by name, those that were given, and `config`.

    An empty variable counts as not set. `defaults` take the place of the usual ones. Raises `SettingError`.
    """
    variables = _from_environment(environ)
    given = {name: Given(value, flag(name)) for name, value in flags.items()}
    file = given.pop(CONFIG, None) or variables.pop(CONFIG, None)
    variables.pop(CONFIG, None)
    others = {name: Given(value, DEFAULT) for name, value in defaults.items()}
    return _settle({**others, **(_from_file(file) if file else {}), **variables, **given})


def add_options(loader: "Loader") -> None:
    """Declare every setting as an option of mitmproxy. Durations and lists are text there: it has no such types."""
    for name, about in SETTINGS.items():
        default: Any = about.default
        typespec: Any = str
        if isinstance(about.kind, Switch | Count):
            default = Settings.model_fields[name].default
            typespec = type(default)
        elif isinstance(about.kind, Options):
            default, typespec = [], Sequence[str]
        elif Settings.model_fields[name].default is None:
            # mitmproxy knows Optional[str], and `str | None` only by chance.
            default, typespec = None, Optional[str]  # noqa: UP045
        loader.add_option(option(name), typespec, default, about.help)


def from_options(options: "OptManager") -> Settings:
    """The settings as the options of a user's own mitmproxy. Raises `SettingError`, also for one of the runner's."""
    values = {name: getattr(options, option(name)) for name in SETTINGS}
    given = {
        name: Given(value, option(name)) for name, value in values.items() if value != options.default(option(name))
    }
    for name, instead in _OWN_OF_MITMPROXY.items():
        if name in given:
            raise SettingError(name, "does nothing in your own mitmproxy", source=option(name), remedy=f"use {instead}")
    return _settle(given).settings


def _bare(spelling: str) -> str:
    """The setting's name in any of its spellings, so that what they all share does not make two of them alike."""
    return spelling.lower().replace("-", "_").lstrip("_").removeprefix(PREFIX.lower())


def _settle(given: Mapping[str, Given]) -> Loaded:
    sources = {name: one.source for name, one in given.items()}
    try:
        settings = Settings.model_validate({name: one.value for name, one in given.items()})
    except SettingError as error:
        error.source = sources.get(error.setting, DEFAULT)
        raise
    return Loaded(settings, sources)


def _from_environment(environ: Mapping[str, str]) -> dict[str, Given]:
    known = {variable(name): name for name in (*SETTINGS, CONFIG)}
    given = {}
    for name, value in sorted(environ.items()):
        if name in known:
            if value:
                given[known[name]] = Given(value, name)
        elif name.startswith(PREFIX) and name not in RESERVED_VARIABLES:
            raise SettingError(
                name.removeprefix(PREFIX).lower(),
                "is no setting",
                source=name,
                remedy=suggestion(name, known, f"unset it: variables that begin with {PREFIX} are settings"),
            )
    return given


def _from_file(file: Given) -> dict[str, Given]:
    path = str(file.value)
    given = {}
    for name, (value, line) in _read_yaml(path, file.source).items():
        source = f"{path}:{line}" if line else path
        if name not in SETTINGS:
            remedy = suggestion(name, SETTINGS, "see paceproxy --help for what there is")
            raise SettingError(name, "is no setting", source=source, remedy=remedy)
        given[name] = Given(value, source)
    return given


def _read_yaml(path: str, source: str) -> dict[str, tuple[object, int | None]]:
    """The file's keys with their values and lines."""
    # Takes 50 ms, which most who ask for --help need not wait.
    from ruamel.yaml import YAML
    from ruamel.yaml.comments import CommentedMap
    from ruamel.yaml.constructor import DuplicateKeyError
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    def refuse(problem: str, remedy: str) -> NoReturn:
        raise SettingError(CONFIG, problem, value=to_text(path), source=source, remedy=remedy)

    try:
        # Some editors put a byte order mark first.
        text = Path(os.path.expanduser(path)).read_text("utf-8-sig")
        content = YAML(typ="rt").load(text)
    except UnicodeDecodeError:
        refuse("must be a text file in UTF-8", "save it as UTF-8")
    except OSError as error:
        refuse(f"must be a file that can be read ({error.strerror or error})", "give the path of a YAML file")
    except MarkedYAMLError as error:
        # Of a double key the library prints the values, which may be secret.
        what = "a key is there twice" if isinstance(error, DuplicateKeyError) else error.problem
        line = error.problem_mark.line + 1 if error.problem_mark else "?"
        refuse(f"must be valid YAML (line {line}: {what})", "write one `name: value` a line")
    except YAMLError as error:
        refuse(f"must be valid YAML ({error})", "write one `name: value` a line")
    except ValueError as error:
        # What looks like a date or a number and is none: 2026-99-99, or 5,000 digits.
        refuse(f"must be valid YAML ({error})", "put such values in quotation marks")
    except RecursionError:
        refuse("must be settings by name, not nested", "write one `name: value` a line")
    if content is None:
        return {}
    if not isinstance(content, CommentedMap):
        refuse("must be settings by name", "write one `name: value` a line")
    return {str(key): (value, _line(content, key)) for key, value in content.items()}


def _line(content: Any, key: object) -> int | None:
    """The line of a key, from 1; None for one that came in by a merge."""
    place = content.lc.data.get(key)
    return place[0] + 1 if place else None
