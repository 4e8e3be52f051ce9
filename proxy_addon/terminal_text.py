"""Text from elsewhere, made fit for a line on a terminal. Pure; what it means is not looked at here."""

_LONGEST_SHOWN = 300
"""Characters: it stays one readable line."""


def one_line(text: str) -> str:
    """In one line, without what would move a terminal's cursor, colour it, or turn the direction of writing."""
    return "".join(char if char.isprintable() else "?" for char in " ".join(text.split()))


def printable(text: str) -> str:
    """The same, of bounded length: for what a server says."""
    shown = one_line(text)
    return shown if len(shown) <= _LONGEST_SHOWN else f"{shown[:_LONGEST_SHOWN]}..."
