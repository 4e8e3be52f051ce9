"""Text from elsewhere on a terminal."""

from proxy_addon.terminal_text import one_line, printable


def test_what_would_move_colour_or_turn_is_replaced() -> None:
    assert one_line("a\x1b[31mb\x07c\u202ed\ud800e\x9bf") == "a?[31mb?c?d?e?f"


def test_lines_become_one() -> None:
    assert one_line(" a\r\nb\tc\u2028d\n") == "a b c d"


def test_letters_of_all_scripts_stay() -> None:
    assert one_line("bücher.例え.דוגמה") == "bücher.例え.דוגמה"


def test_what_a_server_says_is_cut() -> None:
    assert printable("x" * 300) == "x" * 300
    assert printable("x" * 301) == "x" * 300 + "..."
    assert one_line("x" * 301) == "x" * 301
