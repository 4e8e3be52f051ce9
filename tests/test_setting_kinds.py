"""Numbers and words, as they come from text, from YAML and from Python."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy_addon.setting_kinds import BadValue, Choice, Count, CountOrWord, Kind, Seconds, Size, Switch, items, to_text


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("600", 600.0),
        ("0.05", 0.05),
        (".5", 0.5),
        ("5.", 5.0),
        ("+5", 5.0),
        (" 45 ", 45.0),
        ("45\x1f", 45.0),
        ("007", 7.0),
        ("1000000000", 1e9),
        (600, 600.0),
        (0.05, 0.05),
    ],
)
def test_a_duration_is_decimal_seconds(value: object, seconds: float) -> None:
    assert Seconds().parse(value) == seconds


@pytest.mark.parametrize(
    "value",
    ["", " ", "1m", "1m0s", "nan", "inf", "-inf", "1e3", "0x10", "1_000", "1,5", "٣", "5 6", True, None, math.nan, [5]],
)
def test_what_is_no_decimal_number_is_no_duration(value: object) -> None:
    with pytest.raises(BadValue) as caught:
        Seconds(zero=True).parse(value)
    assert caught.value.problem == "must be decimal seconds"


@pytest.mark.parametrize("value", ["-5", "-0.001", -5, -math.inf, -(10**400)])
def test_a_duration_is_not_negative(value: object) -> None:
    with pytest.raises(BadValue, match=r"^must be >= 0 seconds$"):
        Seconds(zero=True).parse(value)
    with pytest.raises(BadValue, match=r"^must be > 0 seconds$"):
        Seconds().parse(value)


@pytest.mark.parametrize("value", ["0", "0.0", "-0", 0, 0.0, -0.0])
def test_a_duration_of_zero_is_allowed_only_where_it_means_something(value: object) -> None:
    zero = Seconds(zero=True).parse(value)
    assert (zero, math.copysign(1, zero)) == (0.0, 1.0)
    with pytest.raises(BadValue, match=r"^must be > 0 seconds$"):
        Seconds().parse(value)


@pytest.mark.parametrize("value", ["1000000001", "9" * 5000, math.inf, 10**400])
def test_a_duration_ends_at_thirty_years(value: object) -> None:
    with pytest.raises(BadValue, match=r"^must be <= 1000000000 seconds$"):
        Seconds().parse(value)


@pytest.mark.parametrize(
    ("seconds", "text"), [(600.0, "600"), (0.05, "0.05"), (1e-05, "0.00001"), (1234567.5, "1234567.5"), (0.0, "0")]
)
def test_a_duration_is_written_exactly_and_without_an_exponent(seconds: float, text: str) -> None:
    assert Seconds().show(seconds) == text


@given(st.floats(min_value=0, max_value=1e9))
def test_a_duration_that_was_written_is_read_as_the_same(seconds: float) -> None:
    kind = Seconds(zero=True)
    assert kind.parse(kind.show(seconds)) == seconds


@pytest.mark.parametrize(("value", "number"), [("3", 3), (" 3 ", 3), ("3\x1f", 3), ("+3", 3), ("010", 10), (3, 3)])
def test_a_count_is_a_whole_number(value: object, number: int) -> None:
    assert Count().parse(value) == number


@pytest.mark.parametrize("value", ["", "3.0", 3.0, "1e3", "three", "٣", True, None, "9" * 5000])
def test_what_is_no_whole_number_is_no_count(value: object) -> None:
    with pytest.raises(BadValue, match=r"^must be a whole number$"):
        Count(zero=True).parse(value)


def test_a_count_of_zero_is_allowed_only_where_it_means_something() -> None:
    assert Count(zero=True).parse("0") == 0
    with pytest.raises(BadValue, match=r"^must be > 0$"):
        Count().parse("0")
    with pytest.raises(BadValue, match=r"^must be >= 0$"):
        Count(zero=True).parse("-1")


IN_FLIGHT = CountOrWord(("learn", "off"), most=10_000)


@pytest.mark.parametrize(
    ("value", "meant"),
    [("learn", "learn"), (" LEARN ", "learn"), ("off", "off"), (False, "off"), ("1", 1), (10_000, 10_000)],
)
def test_a_count_or_a_word_is_one_of_the_two(value: object, meant: int | str) -> None:
    assert IN_FLIGHT.parse(value) == meant
    assert IN_FLIGHT.parse(IN_FLIGHT.show(meant)) == meant


@pytest.mark.parametrize("value", ["", "0", 0, -1, 10_001, "9" * 5000, 10**99, 2.0, "on", True, None, "learn 5"])
def test_what_is_neither_a_count_nor_a_word_says_what_it_could_be(value: object) -> None:
    with pytest.raises(BadValue, match=r"^must be learn, off or a whole number from 1 to 10000$"):
        IN_FLIGHT.parse(value)


def test_false_is_no_word_where_there_is_no_off() -> None:
    with pytest.raises(BadValue, match=r"^must be any or a whole number from 1 to 3$"):
        CountOrWord(("any",), most=3).parse(False)


@pytest.mark.parametrize(
    ("value", "size"),
    [
        ("0", 0),
        ("16384", 16384),
        ("16k", 16384),
        ("1m", 1048576),
        ("2g", 2147483648),
        ("1M", 1048576),
        ("5b", 5),
        (" 64k ", 65536),
        (65536, 65536),
    ],
)
def test_a_size_is_bytes_and_may_have_a_suffix(value: object, size: int) -> None:
    assert Size().parse(value) == size


@pytest.mark.parametrize("value", ["", "k", "1.5m", "1t", "1 m", "one", "٣", 1.5, True, None])
def test_what_is_no_number_of_bytes_is_no_size(value: object) -> None:
    with pytest.raises(BadValue, match=r"^must be a number of bytes$"):
        Size().parse(value)


@pytest.mark.parametrize("value", ["-1", "-1k", -1])
def test_a_size_is_not_negative(value: object) -> None:
    with pytest.raises(BadValue, match=r"^must be >= 0 bytes$"):
        Size().parse(value)


@pytest.mark.parametrize("value", ["1", "true", "yes", "on", "ON", " True ", True, 1])
def test_a_switch_is_turned_on_with_these_words(value: object) -> None:
    assert Switch().parse(value) is True


@pytest.mark.parametrize("value", ["0", "false", "no", "off", "Off", False, 0])
def test_a_switch_is_turned_off_with_these_words(value: object) -> None:
    assert Switch().parse(value) is False


@pytest.mark.parametrize("value", ["", "2", "y", "enabled", 2, 1.0, None, ["on"]])
def test_a_switch_takes_no_other_word(value: object) -> None:
    with pytest.raises(BadValue, match=r"^must be one of 1, 0, true, false, yes, no, on, off$"):
        Switch().parse(value)


def test_a_switch_is_written_as_in_yaml() -> None:
    assert (Switch().show(True), Switch().show(False)) == ("true", "false")


def test_a_choice_is_one_of_its_words_in_any_case() -> None:
    assert Choice(("debug", "info")).parse(" INFO ") == "info"


@pytest.mark.parametrize("value", ["", "information", "debug,info", 5, None])
def test_a_choice_is_nothing_but_one_of_its_words(value: object) -> None:
    with pytest.raises(BadValue, match=r"^must be one of debug, info$"):
        Choice(("debug", "info")).parse(value)


@pytest.mark.parametrize(
    ("value", "members"),
    [
        ("", []),
        ("  ", []),
        ("a", ["a"]),
        (" a , b", ["a", "b"]),
        ("a,", ["a", ""]),
        (["a", 5], ["a", 5]),
        (("a",), ["a"]),
        (frozenset({"b", "a"}), ["a", "b"]),
        (429, [429]),
    ],
)
def test_a_list_has_commas_or_is_one_already(value: object, members: list[object]) -> None:
    assert items(value) == members


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "nothing"), (True, "true"), (False, "false"), ("", "''"), ("abc", "abc"), (5, "5"), ([5, "a"], "5,a")],
)
def test_a_value_is_shown_as_it_was_given(value: object, text: str) -> None:
    assert to_text(value) == text


@pytest.mark.parametrize("kind", [Seconds(), Count(), IN_FLIGHT, Size(), Switch(), Choice(("info",))])
def test_only_kinds_that_may_hold_a_credential_mask_anything(kind: Kind[object]) -> None:
    assert kind.mask("user:password@host") == "user:password@host"
