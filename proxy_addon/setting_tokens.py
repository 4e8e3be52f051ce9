"""Files that hold one secret word, for `Authorization: Bearer`. No message ever holds it."""

import re
from pathlib import Path

from proxy_addon.setting_kinds import BadValue

SHORTEST = 16
"""Characters. A random word of that length cannot be guessed, by one who may try as often as he likes."""

_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")
"""RFC 6750 §2.1."""
_REMEDY = "make it with `(umask 077; head -c 32 /dev/urandom | base64 > FILE)`"


def check_token(path: Path) -> None:
    """A token, perhaps with white space around it, that only its owner can write and others cannot read.

    Its group may read it: so a secret is mounted into a pod. Raises `BadValue`, OSError or ValueError.
    """
    mode = path.stat().st_mode
    if mode & 0o027:
        raise BadValue(
            f"must not be open to others, and is {mode & 0o777:04o}", f"take it away from them with `chmod 600 {path}`"
        )
    token = path.read_text("utf-8").strip()
    if len(token) < SHORTEST:
        raise BadValue(f"must hold a token of at least {SHORTEST} characters" if token else "is empty", _REMEDY)
    if not _TOKEN.fullmatch(token):
        raise BadValue("must hold one word of letters, digits and -._~+/=", _REMEDY)


def read_token(path: str) -> str:
    """The token in a file that has been checked. Raises OSError."""
    return Path(path).read_text("utf-8").strip()
