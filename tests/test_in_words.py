"""Numbers in words."""

import pytest

from proxy_addon.in_words import duration


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-1.0, "0 s"), (0.04, "0 s"), (0.44, "0.4 s"), (9.94, "9.9 s"), (9.96, "10 s"), (59.4, "59 s"),
        (59.6, "1 min"), (185.0, "3 min 5 s"), (3599.6, "1 h"), (7440.0, "2 h 4 min"),
    ],
)  # fmt: skip
def test_durations_are_for_people(seconds: float, text: str) -> None:
    assert duration(seconds) == text
