"""What only the memory store promises. The rest of its contract is in `test_store_conformance.py`."""

import asyncio

import pytest

from proxy_addon.model import HostState
from proxy_addon.store.memory import MemoryStore


def test_a_store_for_one_process_has_no_second_handle() -> None:
    with pytest.raises(ValueError, match=r"needs MemoryStore\(shared=True\)"):
        MemoryStore().beside()


def test_engines_that_share_one_handle_do_not_lose_the_rows_when_one_of_them_closes_it() -> None:
    async def scenario() -> None:
        store = MemoryStore(shared=True)
        await store.open()
        await store.open()
        version = await store.swap("a.example", None, HostState(rung=1), now=1_700_000_000.0)
        await store.close()
        assert version is not None
        assert await store.get("a.example") == HostState(rung=1, version=version)
        assert await store.heartbeat(1_700_000_000.0) == 1

    asyncio.run(scenario())
