"""The fuzz run at length: `python tests/fuzz/run.py [--minutes 10] [--seed 1]`, or `--replay FILE` for one round.

A round in which something was wrong is made smaller for a while, and written to the current folder: as Python, from
where it can be played again, and what was wrong with all that was asked and answered. Loopback only. The short run
that is part of the tests is in `test_fuzz.py`.
"""

import argparse
import random
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.fuzz.draw import play_rounds
from tests.fuzz.plan import Page, Round, read_round
from tests.fuzz.session import Session, running_session


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    parser.add_argument("--shrink-minutes", type=float, default=2.0, help="for a round in which something was wrong")
    parser.add_argument("--replay", type=Path, help="a file that an earlier run has written")
    parser.add_argument("--times", type=int, default=1, help="how often it is replayed")
    parser.add_argument("--go-on", action="store_true", help="do not stop at the first fault, and shrink none")
    asked = parser.parse_args()
    with running_session() as session:
        if asked.replay:
            return replay(session, read_round(asked.replay.read_text()), asked.times)
        return hunt(session, asked.seed, asked.minutes * 60, asked.shrink_minutes * 60, go_on=asked.go_on)


def replay(session: Session, round_: Round, times: int) -> int:
    wrong = 0
    for _ in range(times):
        if found := session.play(round_):
            wrong += 1
            say("\n".join(found) + "\n" + session.transcript())
    say(f"wrong {wrong} times of {times}")
    return 1 if wrong else 0


def hunt(session: Session, seed: int, seconds: float, shrink_s: float, *, go_on: bool) -> int:
    say(f"seed {seed}")
    wrong: list[Round] = []

    def play(round_: Round) -> bool:
        found = session.play(round_)
        if found:
            wrong.append(round_)
            report(f"fuzz-{seed}-{session.rounds}", round_, found, session.transcript())
        return go_on or not found

    play_rounds(play, seed_=seed, seconds=seconds)
    if wrong and not go_on:
        report(f"fuzz-{seed}-smallest", *shrink(session, wrong[0], session.transcript(), shrink_s))
    say(f"{session.rounds} rounds, {session.requests} requests, seed {seed}: wrong in {len(wrong)}")
    return 1 if wrong else 0


def report(name: str, round_: Round, found: list[str], transcript: str) -> None:
    Path(f"{name}.py").write_text(f"{round_!r}\n")
    Path(f"{name}.txt").write_text("\n".join((*found, transcript)) + "\n")
    say(f"--- {name}.py, {name}.txt\n" + "\n".join(found))


def shrink(session: Session, round_: Round, transcript: str, seconds: float) -> tuple[Round, list[str], str]:
    """Leave out what can be left out with something still wrong. Not everything shows each time: two tries each."""
    ends_at = time.monotonic() + seconds
    best: tuple[Round, list[str], str] = (round_, [], transcript)
    smaller = True
    while smaller and time.monotonic() < ends_at:
        smaller = False
        for candidate in _smaller(best[0]):
            if time.monotonic() > ends_at:
                break
            found = session.play(candidate) or session.play(candidate)
            if found:
                best, smaller = (candidate, found, session.transcript()), True
                break
    return best


def _smaller(round_: Round) -> Iterator[Round]:
    clients = round_.clients
    size = len(clients) // 2
    while size:
        for start in range(0, len(clients), size):
            if kept := clients[:start] + clients[start + size :]:
                yield replace(round_, clients=kept)
        size //= 2
    for index, client in enumerate(clients):
        if len(client.asks) > 1:
            for left_out in range(len(client.asks)):
                asks = client.asks[:left_out] + client.asks[left_out + 1 :]
                yield replace(round_, clients=(*clients[:index], replace(client, asks=asks), *clients[index + 1 :]))
    for index, page in enumerate(round_.pages):
        for left_out in range(len(page.replies) if len(page.replies) > 1 else 0):
            fewer = Page(page.replies[:left_out] + page.replies[left_out + 1 :])
            yield replace(round_, pages=(*round_.pages[:index], fewer, *round_.pages[index + 1 :]))


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
