"""What went wrong with the system, in words for people."""

import os
import socket


def os_error_text(error: OSError) -> str:
    """As the system says it: asyncio and tornado add texts of their own."""
    if error.errno is None or isinstance(error, socket.gaierror):
        return str(error.strerror or error)
    return os.strerror(error.errno)
