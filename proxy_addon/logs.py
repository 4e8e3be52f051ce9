"""The log: one line for each event on standard error, without credentials and control characters.

mitmproxy logs what it was sent, raw request bytes included; this is the one place that every line goes through.
"""

import logging
import re
import sys
from typing import override

_USERINFO = re.compile(
    r"""(?:(?<=://)|(?<=CONNECT[ ]))(?:
        [^][/?\#\s"<>:@]*:(?!\d*(?:[/?\#\s"'<>]|$))[^\s"<>]{0,1000}  # what comes after the colon is no port
        |[^/?\#\s"<>]*
    )@""",
    re.VERBOSE,
)
"""A user and a password in a URL or in the target of a CONNECT, also where the password holds what should have been
encoded. Bounded: a flood of colons must not take seconds."""
_CREDENTIALS = re.compile(
    r"""((?:proxy-)?authorization|(?:set-)?cookie)
    (['")\]]*[^\S\n]*[:=,][^\S\n]*|[^\S\n]+(?=(?:basic|bearer|digest|negotiate)\s|\S+=))  # a colon may be missing
    [^\n]+""",
    re.IGNORECASE | re.VERBOSE,
)
"""To the end of the line: where the field ends is not certain in what is malformed, or escaped."""
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")
"""But for line ends and tabs; with what turns the direction of writing."""
_CONTINUED = "\n    "


def without_userinfo(text: str) -> str:
    """The text with the users and passwords in its URLs left out."""
    return _USERINFO.sub("[redacted]@", text)


def clean(text: str) -> str:
    """The text without credentials, and with control characters (but line ends and tabs) written out."""
    text = without_userinfo(text)
    text = _CREDENTIALS.sub(r"\1\2[redacted]", text)
    return _CONTROL.sub(lambda match: match[0].encode("unicode_escape").decode("ascii"), text)


class CleanFormatter(logging.Formatter):
    """Time, level, logger and text; what comes from outside cannot begin a line of its own."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")

    @override
    def format(self, record: logging.LogRecord) -> str:
        message = record.getMessage().replace("\n", "\\n")
        single = logging.makeLogRecord(record.__dict__ | {"msg": message, "args": None})
        # What follows is a traceback. Its last lines are the exception's text, which may come from outside.
        return clean(super().format(single)).replace("\n", _CONTINUED)


def configure(level: str) -> None:
    """Log everything of at least `level` to standard error; of mitmproxy's own, below `debug`, only warnings."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(CleanFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for name in ("mitmproxy", "aiosqlite", "asyncio", "tornado", "hpack"):
        logging.getLogger(name).setLevel(logging.NOTSET if level == "debug" else max(logging.WARNING, root.level))
    if level == "debug":
        # It logs every table entry of every HTTP/2 field.
        logging.getLogger("hpack").setLevel(logging.INFO)
