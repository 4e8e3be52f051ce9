"""Starts Paceproxy with the arguments that Scrapy's tests give to mitmdump.

    mitmdump_wrapper.py --listen-host H --listen-port P --proxyauth USER:PASSWORD --set confdir=DIR \\
        --ssl-insecure -s SCRIPT [--mode MODE]

Most have their counterpart among our flags. For the rest the command's master gets an addon of mitmproxy's:
the script loader, since the tests' script marks the responses that went through the proxy; and, where there is
a mode, `proxyauth`, since SOCKS, which the command does not offer, asks that option for passwords. An argument
that is not known is an error: nothing is ignored.
"""

import argparse
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import bcrypt
from mitmproxy import master, options
from mitmproxy.addons import proxyauth, script

from proxy_addon import cli


def main() -> int:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--listen-host", required=True)
    parser.add_argument("--listen-port", required=True)
    parser.add_argument("--proxyauth")
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--ssl-insecure", action="store_true")
    parser.add_argument("-s", dest="script", required=True)
    parser.add_argument("--mode")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="mitmdump-wrapper-") as folder:
        flags = ["--listen", f"{given.listen_host}:{given.listen_port}", "--admin", "off", "--store", "memory:"]
        for item in given.set:
            name, _, value = item.partition("=")
            flags += ["--confdir", value] if name == "confdir" else ["--set", item]
        if given.ssl_insecure:
            flags.append("--ssl-insecure")
        extra: dict[str, object] = {"scripts": [given.script]}
        if given.mode:
            flags += ["--set", f"mode={given.mode}"]
            extra["proxyauth"] = given.proxyauth
        elif given.proxyauth:
            flags += ["--htpasswd", _password_file(given.proxyauth, Path(folder) / "htpasswd")]
        # The runner makes its master by this name.
        master.Master = _extended(extra)  # type: ignore[misc]
        return cli.main(flags)


def _password_file(credentials: str, path: Path) -> str:
    user, _, password = credentials.partition(":")
    # The lowest cost: what is tested is not the hash.
    digest = bcrypt.hashpw(password.encode(), bcrypt.gensalt(4)).decode()
    path.write_text(f"{user}:{digest}\n")
    return str(path)


def _extended(values: Mapping[str, object]) -> type[master.Master]:
    """A master with further addons of mitmproxy's, and the options that these have."""

    class ExtendedMaster(master.Master):
        def __init__(self, opts: options.Options) -> None:
            super().__init__(opts)
            self.addons.add(script.ScriptLoader())
            if "proxyauth" in values:
                self.addons.add(proxyauth.ProxyAuth())
            opts.update(**values)

    return ExtendedMaster


if __name__ == "__main__":
    sys.exit(main())
