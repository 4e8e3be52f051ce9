"""A blocking call that is given up after a time, for commands that ask who knows what.

A socket's own time-out begins anew with every byte, and the look-up of a name or the opening of a file has none: only
from outside can the whole be bounded. The thread of a call that was given up ends with the process, so this is nothing
for one that goes on.
"""

import queue
import threading
from collections.abc import Callable


def within[Result](limit_s: float, call: Callable[[], Result]) -> Result:
    """What `call` returns or raises; `TimeoutError` where it does neither in time."""
    ended: queue.Queue[Result | BaseException] = queue.Queue()

    def run() -> None:
        try:
            ended.put(call())
        except BaseException as error:
            ended.put(error)

    threading.Thread(target=run, name="bounded call", daemon=True).start()
    try:
        result = ended.get(timeout=limit_s)
    except queue.Empty:
        raise TimeoutError(f"no answer within {limit_s:g} s") from None
    if isinstance(result, BaseException):
        raise result
    return result
