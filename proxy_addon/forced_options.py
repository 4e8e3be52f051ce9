"""The options of a mitmproxy that loads the addon: which must be as they are, and which of ours are misspelt.

How a setting becomes an option is in `setting_sources.py`.
"""

from mitmproxy import ctx

from proxy_addon.setting_sources import option, suggestion
from proxy_addon.settings import SETTINGS, SettingError, Settings


def refuse_unknown() -> None:
    """A slip of the pen must not leave a setting at its default: mitmproxy keeps options that nobody knows."""
    for name in ctx.options.deferred:
        if name.startswith("pace_"):
            remedy = suggestion(name, map(option, SETTINGS), "see `mitmdump -s FILE --options` for what there is")
            raise SettingError(name.removeprefix("pace_"), "is no setting", source=name, remedy=remedy)


def force(settings: Settings) -> None:
    """The options of mitmproxy without which pacing would be gone round, whatever the user's own say.

    `connection_strategy`: eager would dial the origin at CONNECT. `rawtcp`: what is neither TLS nor HTTP after CONNECT
    would be passed on unseen. `stream_large_bodies`: a longer upload would be held in memory.
    """
    forced = {
        "connection_strategy": "lazy",
        "rawtcp": False,
        "stream_large_bodies": str(settings.hold_request),
        "store_streamed_bodies": False,
    }
    wrong = {name: value for name, value in forced.items() if getattr(ctx.options, name) != value}
    if wrong:
        ctx.options.update(**wrong)
