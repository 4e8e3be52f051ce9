"""An operator's decision among real processes: two engines on one SQLite file, by the system's clock."""

import asyncio
import subprocess
import sys
from pathlib import Path

from proxy_addon.clock import SystemClock
from proxy_addon.engine import Engine
from proxy_addon.settings import Settings
from proxy_addon.store.sqlite import SqliteStore

PROJECT = Path(__file__).parents[1]
OTHER = """
import asyncio, sys
from proxy_addon.clock import SystemClock
from proxy_addon.engine import Engine
from proxy_addon.settings import Settings
from proxy_addon.store.sqlite import SqliteStore

async def main():
    clock = SystemClock()
    engine = Engine(Settings(), SqliteStore(sys.argv[1]), clock)
    await engine.start()
    told = None
    async with asyncio.timeout(60):
        while told != (0.0, False):
            view = engine.view("shop.example")
            seen = (view.floor_s, view.paused_until > clock.now()) if view is not None else (None, None)
            if seen != told:
                told = seen
                print(*told, flush=True)
            await asyncio.sleep(0.01)
    await engine.stop()

asyncio.run(main())
"""
"""Says what it sees of a host whenever that changes, until the host has neither floor nor pause."""


def test_processes_on_one_file_follow_and_a_restart_forgets_nothing(tmp_path: Path) -> None:
    path = tmp_path / "hosts.sqlite3"
    other = subprocess.Popen([sys.executable, "-c", OTHER, path], stdout=subprocess.PIPE, text=True, cwd=PROJECT)
    assert other.stdout is not None
    stdout = other.stdout

    async def started() -> Engine:
        engine = Engine(Settings(), SqliteStore(path), SystemClock())
        await engine.start()
        return engine

    async def hears(line: str) -> None:
        async with asyncio.timeout(30):
            assert await asyncio.to_thread(stdout.readline) == line

    async def scenario() -> None:
        await hears("None None\n")
        engine = await started()
        await engine.set_floor("shop.example", 5)
        await hears("5.0 False\n")
        paused = await engine.pause("shop.example", 600)
        await hears("5.0 True\n")
        await engine.stop()

        engine = await started()
        assert engine.view("shop.example") == paused
        await engine.resume("shop.example")
        await hears("5.0 False\n")
        await engine.set_floor("shop.example", 0)
        await hears("0.0 False\n")
        await engine.stop()

    try:
        asyncio.run(scenario())
        assert other.wait(timeout=30) == 0
    finally:
        other.kill()
        other.communicate()
