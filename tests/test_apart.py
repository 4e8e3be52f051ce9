"""Layers that have been taken apart are freed at once, without a garbage collection."""

import gc
import weakref
from collections.abc import Iterator

import pytest
from mitmproxy.connection import Client
from mitmproxy.options import Options
from mitmproxy.proxy import events, layer
from mitmproxy.proxy.context import Context

from proxy_addon.apart import take_apart


class Part(layer.Layer):
    """As mitmproxy's: in its context's list, with a bound method of its own as its state."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.state = self._handle_event
        self.child: layer.Layer | None = None
        self.named: dict[str, layer.Layer] = {}

    def _handle_event(self, event: events.Event) -> layer.CommandGenerator[None]:
        yield from ()


@pytest.fixture
def no_collection() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


@pytest.fixture
def context() -> Context:
    return Context(Client(peername=("127.0.0.1", 1), sockname=("127.0.0.1", 2), timestamp_start=0.0), Options())


def is_freed(reference: "weakref.ref[Part]") -> bool:
    return reference() is None


@pytest.mark.usefixtures("no_collection")
def test_a_layer_that_refers_to_itself_is_freed(context: Context) -> None:
    part = Part(context)
    reference = weakref.ref(part)
    take_apart(part)
    del part
    assert is_freed(reference)


@pytest.mark.usefixtures("no_collection")
def test_without_being_taken_apart_it_would_not_be(context: Context) -> None:
    part = Part(context)
    reference = weakref.ref(part)
    del part
    assert not is_freed(reference)


@pytest.mark.usefixtures("no_collection")
def test_layers_below_beside_and_in_tables_go_too(context: Context) -> None:
    top, below, inside, beside = Part(context), Part(context.fork()), Part(context.fork()), Part(context)
    top.child = below
    below.named["origin"] = inside
    inside.child = top
    references = [weakref.ref(part) for part in (top, below, inside, beside)]
    take_apart(top)
    del top, below, inside, beside
    assert [is_freed(reference) for reference in references] == [True, True, True, True]
