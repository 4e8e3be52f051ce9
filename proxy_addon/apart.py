"""Taking the layers of a client's connection apart when it has ended.

Layers refer to each other, and to themselves, in circles that only Python's garbage collector would find. Where
thousands of requests were held for long, that would stop the event loop for seconds just when they are let go.
"""

from collections.abc import Iterable

from mitmproxy.proxy.layer import Layer


def take_apart(layer: Layer) -> None:
    """Cut all references among this layer and those it leads to. None of them can be used any more."""
    found = {id(layer): layer}
    ahead = [layer]
    while ahead:
        for near in _neighbours(ahead.pop()):
            if id(near) not in found:
                found[id(near)] = near
                ahead.append(near)
    for one in found.values():
        one.context.layers.clear()
    for one in found.values():
        vars(one).clear()


def _neighbours(layer: Layer) -> Iterable[Layer]:
    yield from layer.context.layers
    for value in vars(layer).values():
        inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else (value,)
        yield from (one for one in inner if isinstance(one, Layer))
