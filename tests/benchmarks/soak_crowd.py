"""The clients of the soak: `soak_crowd.py PROXY_PORT CA PLAIN_PORT SECURE_PORT REQUESTS SECONDS`.

Forty threads, each with one request after the other, evenly over the time. Some keep their connection for a while, some
ask over TLS, some send a body, and one request in fifty is left alone before its answer. Prints one JSON object: how
often each status came, `cut` for an answer that broke off and `left` for those not waited for.
"""

import json
import random
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.support.clients import RawClient

_CLIENTS = 40
_HOSTS = 400
_SECURE_CLIENTS = 5


def client(number: int, requests: int, seconds: float) -> Counter[str]:
    proxy_port, ca, plain_port, secure_port = int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], sys.argv[4]
    dice = random.Random(number)
    secure = number < _SECURE_CLIENTS
    counts: Counter[str] = Counter()
    began = time.monotonic()
    connection: RawClient | None = None
    host = ""
    for turn in range(requests):
        # Its share of the time, at a moment of its own.
        time.sleep(max(0.0, began + (turn + number / _CLIENTS) * seconds / requests - time.monotonic()))
        if connection is None:
            name = f"127.2.{number % 4}.{1 + dice.randrange(_HOSTS // 4)}"
            host = f"{name}:{secure_port if secure else plain_port}"
            connection = RawClient(proxy_port, timeout=60)
            if secure:
                connection.connect(host)
                connection.start_tls(name, ca)
        target = "/" if secure else f"http://{host}/"
        body = b"x" * dice.choice((0, 10, 50_000)) if dice.random() < 0.1 else None
        head = f"{'GET' if body is None else 'POST'} {target} HTTP/1.1\r\nHost: {host}\r\n"
        head += "" if body is None else f"Content-Length: {len(body)}\r\n"
        connection.send(head.encode() + b"\r\n" + (body or b""))
        ends = dice.random() < 0.2
        if dice.random() < 0.02:
            time.sleep(dice.random() / 10)  # This one has little patience.
            counts["left"] += 1
            ends = True
        else:
            try:
                answer = connection.answer()
            except (OSError, AssertionError):
                counts["cut"] += 1
                ends = True
            else:
                counts[str(answer.status)] += 1
                delimited = answer.values("Content-Length") or answer.values("Transfer-Encoding")
                ends = ends or answer.values("Connection") == ["close"] or not (delimited or answer.status == 304)
        if ends:
            connection.close()
            connection = None
    if connection is not None:
        connection.close()
    return counts


def main() -> None:
    requests, seconds = int(sys.argv[5]), float(sys.argv[6])
    with ThreadPoolExecutor(_CLIENTS) as pool:
        parts = pool.map(client, range(_CLIENTS), [requests // _CLIENTS] * _CLIENTS, [seconds] * _CLIENTS)
        json.dump(dict(sorted(sum(parts, Counter[str]()).items())), sys.stdout)


if __name__ == "__main__":
    main()
