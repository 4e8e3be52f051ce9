"""How many files and connections this process may have open."""

import contextlib
import resource


def raise_limit() -> None:
    """As many as the system lets it have. The usual limit of 1,024 is for programs that use select(2), which this does
    not; a crawl of many hosts needs two for each request."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    # macOS says that there is no limit, and takes no such number.
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
