"""The admin address, asked byte by byte."""

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any

GUARD_S = 30.0
"""Against hanging."""


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    fields: dict[str, str]
    """By name in lower case."""
    body: bytes


def run(scenario: Coroutine[Any, Any, None]) -> None:
    async def guarded() -> None:
        async with asyncio.timeout(GUARD_S):
            await scenario

    asyncio.run(guarded())


async def ask_raw(address: tuple[str, int], request: bytes) -> bytes:
    """Everything that comes back until the server closes."""
    reader, writer = await asyncio.open_connection(*address)
    try:
        writer.write(request)
        return await reader.read()
    finally:
        writer.close()
        await writer.wait_closed()


async def ask(
    address: tuple[str, int], path: str, *, method: str = "GET", host: str | None = None, fields: str = ""
) -> Answer:
    if host is None:
        host = f"127.0.0.1:{address[1]}"
    request = f"{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{fields}\r\n"
    return parsed(await ask_raw(address, request.encode()))


def parsed(reply: bytes) -> Answer:
    head, _, body = reply.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    pairs = (line.split(": ", 1) for line in lines)
    return Answer(int(first.split(" ")[1]), {name.lower(): value for name, value in pairs}, body)
