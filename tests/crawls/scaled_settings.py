"""Paceproxy's settings for scaled time: every duration that it uses in production, multiplied by the time scale.

Which settings are durations their declarations say, so that one that is new is scaled, too.
"""

from collections.abc import Mapping

from proxy_addon.setting_kinds import Seconds
from proxy_addon.setting_lists import Ladder
from proxy_addon.setting_sources import suggestion, variable
from proxy_addon.settings import SETTINGS, SettingError, Settings


def scaled_environment(scale: float, options: Mapping[str, str]) -> dict[str, str]:
    """Environment variables of the command. `options`: settings by name, their durations in simulated seconds.

    Raises `SettingError`.
    """
    given = {name.replace("-", "_"): value for name, value in options.items()}
    for name in given:
        if name not in SETTINGS:
            raise SettingError(name, "is not a setting", remedy=suggestion(name, SETTINGS, "see paceproxy --help"))
    settings = Settings(**given)  # type: ignore[arg-type]  # it reads text
    variables = {}
    for name, about in SETTINGS.items():
        value = getattr(settings, name)
        match about.kind:
            case Seconds():
                variables[variable(name)] = about.kind.show(value * scale)
            case Ladder():
                variables[variable(name)] = about.kind.show(tuple(pace * scale for pace in value))
            case kind if name in given:
                variables[variable(name)] = kind.show(value)
    return variables
