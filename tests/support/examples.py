"""How hypothesis looks for examples in this project: for the same ones in every run, and without a clock.

Whoever wants others, to look for what nobody has met yet, runs the tests with `HYPOTHESIS_SEARCH=1`.
"""

import os

from hypothesis import settings

SEARCHING = os.environ.get("HYPOTHESIS_SEARCH") == "1"
FIXED = settings(derandomize=not SEARCHING, deadline=None, database=None)
"""Of an example that fails, the code is at fault, never the machine's load or the run's luck."""
