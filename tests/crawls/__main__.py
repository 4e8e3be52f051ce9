"""`python -m tests.crawls`."""

import sys

from tests.crawls.command import main

sys.exit(main())
