"""`python -m proxy_addon` is the command `paceproxy`."""

import sys

from proxy_addon.cli import main

if __name__ == "__main__":
    sys.exit(main())
