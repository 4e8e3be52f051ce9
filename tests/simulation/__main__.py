"""`python -m tests.simulation`."""

import sys

from tests.simulation.command import run_command

if __name__ == "__main__":
    sys.exit(run_command())
