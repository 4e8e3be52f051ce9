"""The folder of our certificate authority: made where there is none, and refused where it is of no use.

The authority itself is mitmproxy's, which makes it when it is given the folder.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from mitmproxy import certs

from proxy_addon.ca_bundle import bundle_path, confdir_path, keep_bundle
from proxy_addon.settings import SettingError, Settings


def prepare_confdir(settings: Settings) -> Path:
    """The folder of the CA, for its owner's eyes only where we make it."""
    confdir = confdir_path(settings)
    try:
        confdir.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not os.access(confdir, os.W_OK | os.X_OK) and not (confdir / "mitmproxy-ca.pem").exists():
            raise PermissionError(13, os.strerror(13))
    except OSError as error:
        raise SettingError(
            "confdir",
            f"cannot be used: {error.strerror}",
            value=settings.confdir,
            remedy="give a folder that can be written to",
        ) from error
    return confdir


@contextmanager
def alone_with_authority(confdir: Path) -> Iterator[None]:
    """No other proxy looks for an authority here, or makes one, meanwhile.

    Two that both found none would each make one, and clients of the first would be given the certificate of the second.
    Where the folder cannot be locked, as on some network file systems, that is left to luck.
    """
    with ExitStack() as undo:
        with suppress(OSError):
            folder = os.open(confdir, os.O_RDONLY)
            # The lock ends with the descriptor, also where the process is killed.
            undo.callback(os.close, folder)
            fcntl.flock(folder, fcntl.LOCK_EX)
        yield


def check_authority(confdir: Path) -> None:
    """Refuse a CA that mitmproxy could not use: it logs that, and goes on without one."""
    if not (confdir / "mitmproxy-ca.pem").exists():
        return
    try:
        certs.CertStore.from_store(confdir, "mitmproxy", key_size=2048)
    except TypeError:
        # The key is encrypted, and is opened by `--set cert_passphrase=…`.
        return
    except (OSError, ValueError, IndexError) as error:
        raise SettingError(
            "confdir",
            "holds a certificate authority that cannot be used",
            value=str(confdir),
            remedy="correct or remove its mitmproxy-ca.pem; without one a new authority is made",
        ) from error


def share_bundle(settings: Settings, confdir: Path) -> None:
    """Write the bundle for clients, where a setting says where: they wait for it."""
    if settings.ca_bundle is None:
        return
    try:
        keep_bundle(bundle_path(settings, confdir), confdir)
    except OSError as error:
        raise SettingError(
            "ca_bundle",
            f"cannot be written: {error.strerror or error}",
            value=settings.ca_bundle,
            remedy="give a file in a folder that this user can write to",
        ) from error
