"""Files with the certificates that a client must trust: those of the system, and ours.

A client that is given a file of its own trusts nothing else; with our certificate alone it could reach nobody past the
proxy. What clients do with such a file is in `client_environment.py`.
"""

import os
import re
import ssl
import tempfile
from collections.abc import Iterable
from pathlib import Path

import certifi

from proxy_addon.settings import SettingError, Settings

BUNDLE_NAME = "paceproxy-ca-bundle.pem"
"""Beside the certificate authority, in the confdir."""

CA_NAME = "mitmproxy-ca-cert.pem"
"""What mitmproxy calls the certificate of its authority, in the confdir."""

_SYSTEM_FILES = (
    "/etc/ssl/certs/ca-certificates.crt",  # Debian, Ubuntu, Arch, Alpine
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",  # Fedora, RHEL
    "/etc/pki/tls/certs/ca-bundle.crt",  # older ones
    "/etc/ssl/ca-bundle.pem",  # openSUSE
    "/etc/ssl/cert.pem",  # macOS, BSD
)
"""Where systems keep theirs, as Go's crypto/x509 and curl's configure look for it."""

_CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)


def system_certificates() -> str:
    """PEM certificates that programs on this system trust; Mozilla's, where the system has no file of them."""
    for name in (*_SYSTEM_FILES, ssl.get_default_verify_paths().openssl_cafile, certifi.where()):
        try:
            text = read_certificates(Path(name))
        except OSError:
            # The next system's.
            continue
        if text:
            return text
    raise FileNotFoundError(f"no file with certificates at any of {', '.join(_SYSTEM_FILES)}")


def read_certificates(path: Path) -> str:
    """The PEM certificates in a file, or in the files of a folder; empty where there is none. Raises OSError."""
    # A folder as `openssl rehash` makes it has links to files that it holds, too: `join` drops what is twice.
    files = sorted(one for one in path.iterdir() if one.is_file()) if path.is_dir() else [path]
    return join(file.read_text(encoding="ascii", errors="replace") for file in files)


def join(texts: Iterable[str]) -> str:
    """All certificates in these texts, each once, in order, without what stands between them."""
    found: dict[str, str] = {}
    for text in texts:
        for block in _CERTIFICATE.findall(text):
            found.setdefault("".join(block.split()), "\n".join(line.strip() for line in block.splitlines()))
    return "".join(f"{block}\n" for block in found.values())


def own_certificate(confdir: Path) -> str:
    """Our authority's certificate. Raises OSError, `FileNotFoundError` where there is no authority yet."""
    # Whoever brings an authority along may have brought only the file that mitmproxy reads: key and certificate.
    path = confdir / CA_NAME
    return read_certificates(path if path.exists() else confdir / "mitmproxy-ca.pem")


def confdir_path(settings: Settings) -> Path:
    """The folder of the authority, which need not be there."""
    try:
        return Path(settings.confdir).expanduser()
    except RuntimeError as error:
        raise SettingError(
            "confdir",
            "cannot be found: this user has no home folder",
            value=settings.confdir,
            remedy="set HOME, or give the path of a folder that can be written to",
        ) from error


def bundle_path(settings: Settings, confdir: Path) -> Path:
    """Where the bundle is, or will be."""
    return confdir / BUNDLE_NAME if settings.ca_bundle is None else Path(settings.ca_bundle).absolute()


def keep_bundle(bundle: Path, confdir: Path) -> Path:
    """Bring the bundle up to date: the system's certificates and that of the authority here. Raises OSError."""
    text = join([system_certificates(), own_certificate(confdir)])
    if not bundle.is_file() or bundle.read_text(encoding="ascii", errors="replace") != text:
        write_whole(bundle, text)
    return bundle


def write_whole(path: Path, text: str) -> None:
    """Put the text in the file's place in one step, readable for everybody: a client may be reading the old one."""
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    try:
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(text)
            os.fchmod(descriptor, 0o644)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise
