"""A short fuzz run: pages that misbehave in every way, and twenty clients that ask for them at once.

What must hold is in `judge.py` and `session.py`. `run.py` does the same for as long as one likes, and plays one round
again.
"""

from pathlib import Path

from hypothesis import given, settings

from tests.fuzz.draw import play_rounds, rounds
from tests.fuzz.plan import Round, read_round
from tests.fuzz.session import running_session
from tests.support.examples import FIXED

SEED = 1
SECONDS = 35.0
"""With the start, and the end of the last round, less than a minute."""


def test_whatever_origins_and_clients_do_the_proxy_keeps_its_promises(confdir: Path) -> None:
    wrong: list[str] = []
    with running_session(confdir) as session:

        def play(round_: Round) -> bool:
            if found := session.play(round_):
                again = f"To play it again, `run.py --replay FILE` with this in the file:\n{round_!r}"
                wrong.append("\n".join((*found, again, session.transcript())))
            return not found

        play_rounds(play, seed_=SEED, seconds=SECONDS)
        assert not wrong, wrong[0]
        # Else nothing was shown; on any machine a round takes a few seconds.
        assert session.rounds >= 3


@settings(FIXED, max_examples=10)
@given(rounds())
def test_a_round_can_be_played_again_from_what_is_printed(round_: Round) -> None:
    assert read_round(repr(round_)) == round_
