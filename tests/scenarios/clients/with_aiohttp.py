"""Print pages: `with_aiohttp.py URL…`. Without `trust_env` it would not look at the environment."""

import asyncio
import sys

import aiohttp


async def main() -> None:
    async with aiohttp.ClientSession(trust_env=True) as session:
        for url in sys.argv[1:]:
            async with session.get(url) as response:
                sys.stdout.write(await response.text())


asyncio.run(main())
