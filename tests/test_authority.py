"""The folder of the authority: who may look into it when, and what is said where there is none."""

import asyncio
import errno
import fcntl
import os
from pathlib import Path
from typing import Any

import pytest
from mitmproxy import certs

from proxy_addon.authority import alone_with_authority, prepare_confdir
from proxy_addon.embedded import embedded
from proxy_addon.settings import SettingError, Settings


def is_locked(folder: Path) -> bool:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def test_an_authority_is_made_and_read_by_one_proxy_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[bool] = []
    from_store = certs.CertStore.from_store

    def watched(path: Path | str, *arguments: Any, **named: Any) -> certs.CertStore:
        looked.append(is_locked(tmp_path))
        return from_store(path, *arguments, **named)

    monkeypatch.setattr(certs.CertStore, "from_store", watched)

    async def start() -> None:
        settings = Settings(confdir=str(tmp_path), store="memory:", listen="127.0.0.1:0", admin="127.0.0.1:0")
        async with embedded(settings) as proxy:
            assert not is_locked(tmp_path)
            # It closes the listener.
            await proxy.drain(asyncio.Event())

    asyncio.run(start())
    assert looked == [True]
    asyncio.run(start())
    assert looked == [True, True, True]


@pytest.mark.parametrize("fault", ["open", "flock"])
def test_a_folder_that_cannot_be_locked_can_be_used(
    fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that may be entered but not read, or one on a file system without locks."""

    def refuse(*arguments: object) -> int:
        raise OSError(errno.EACCES if fault == "open" else errno.ENOLCK, "on purpose")

    with monkeypatch.context() as patch:
        patch.setattr(os if fault == "open" else fcntl, fault, refuse)
        with alone_with_authority(tmp_path):
            pass
    assert not is_locked(tmp_path)


def test_a_user_without_a_home_folder_is_told_to_name_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOME", raising=False)
    with pytest.raises(SettingError, match=r"no home folder.*set HOME"):
        prepare_confdir(Settings(confdir="~no-such-user/.mitmproxy"))
