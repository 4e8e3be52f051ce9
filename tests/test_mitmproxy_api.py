"""Every private name of mitmproxy (and h11) that the paced layer relies on. An upgrade that changes one fails here."""

import inspect
from collections.abc import Callable
from typing import Any

import h2.connection
import hyperframe.frame
import pytest
from h11._readers import ChunkedReader, ContentLengthReader, Http10Reader
from h11._receivebuffer import ReceiveBuffer
from mitmproxy import addonmanager, connection
from mitmproxy.net.http import http1, validate
from mitmproxy.proxy import commands, context, events, layer, mode_servers, server, server_hooks, tunnel
from mitmproxy.proxy.layers import http, tls
from mitmproxy.proxy.layers.http import _base, _events, _hooks, _http1, _http2, _http_h2, _upstream_proxy

from proxy_addon import (
    answering,
    border,
    cutting_off,
    dial,
    flowing,
    http1_server,
    http2,
    http2_server,
    origins,
    phases,
    stream,
    tunnels,
)
from proxy_addon import http1 as our_http1
from proxy_addon import layer as our_layer
from tests.support.wire import context as make_context

SIGNATURES: list[tuple[Callable[..., Any], str]] = [
    (layer.Layer.handle_event, "self, event"),
    (layer.Layer._handle_event, "self, event"),
    (layer.NextLayer.handle_event, "self, event"),
    (http.HttpLayer.__init__, "self, context, mode"),
    (http.HttpLayer._handle_event, "self, event"),
    (http.HttpLayer.event_to_child, "self, child, event"),
    (http.HttpLayer.make_stream, "self, stream_id"),
    (http.HttpLayer.get_connection, "self, event, reuse"),
    (http.HttpLayer.register_connection, "self, command"),
    (http.HttpStream.__init__, "self, context, stream_id"),
    (http.HttpStream.start_request_stream, "self"),
    (http.HttpStream.make_server_connection, "self"),
    (http.HttpStream.state_wait_for_response_headers, "self, event"),
    (http.HttpStream.start_response_stream, "self"),
    (http.HttpStream.state_stream_request_body, "self, event"),
    (http.HttpStream.state_stream_response_body, "self, event"),
    (http.HttpStream.send_response, "self, already_streamed"),
    (http.HttpStream.check_invalid, "self, request"),
    (http.HttpStream.check_killed, "self, emit_error_hook"),
    (http.HttpStream.handle_protocol_error, "self, event"),
    (http.HttpStream.state_errored, "self, _"),
    (http.HttpStream.state_done, "self, _"),
    (http.HttpClient._handle_event, "self, event"),
    (http.GetHttpConnection.connection_spec_matches, "self, connection"),
    (http.GetHttpConnection.__init__, "self, address, tls, via, transport_protocol"),
    (http.GetHttpConnectionCompleted.__init__, "self, command, reply"),
    (http.RegisterHttpConnection.__init__, "self, connection, err"),
    (http.SendHttp.__init__, "self, event, connection"),
    (http.DropStream.__init__, "self, stream_id"),
    (_base.ReceiveHttp.__init__, "self, event"),
    (_events.RequestProtocolError.__init__, "self, stream_id, message, code"),
    (_events.ResponseProtocolError.__init__, "self, stream_id, message, code"),
    (_events.RequestHeaders.__init__, "self, stream_id, request, end_stream, replay_flow"),
    (_events.ResponseHeaders.__init__, "self, stream_id, response, end_stream"),
    (_http1.Http1Connection._handle_event, "self, event"),
    (_http1.Http1Connection.read_body, "self, event"),
    (_http1.Http1Connection.mark_done, "self, request, response"),
    (_http1.Http1Connection.wait, "self, event"),
    (_http1.Http1Connection.done, "self, event"),
    (_http1.Http1Server.__init__, "self, context"),
    (_http1.Http1Server.send, "self, event"),
    (_http1.Http1Server.read_headers, "self, event"),
    (_http1.Http1Client.__init__, "self, context"),
    (_http1.Http1Client.send, "self, event"),
    (_http1.Http1Client.read_headers, "self, event"),
    (_http1.make_body_reader, "expected_size"),
    (_http1.should_make_pipe, "request, response"),
    (_http2.Http2Client.__init__, "self, context"),
    (_http2.Http2Server.__init__, "self, context"),
    (_http2.Http2Server._handle_event, "self, event"),
    (_http2.Http2Connection.is_open_for_us, "self, stream_id"),
    (_http2.normalize_h1_headers, "headers, is_client"),
    (_http2.Http2Client._handle_event, "self, event"),
    (_http2.Http2Server.__init__, "self, context"),
    (_http2.Http2Server._handle_event, "self, event"),
    (_http2.Http2Connection.handle_h2_event, "self, event"),
    (_http_h2.BufferedH2Connection.__init__, "self, config"),
    (h2.connection.H2Connection.acknowledge_received_data, "self, acknowledged_size, stream_id"),
    (h2.connection.H2Connection._receive_goaway_frame, "self, frame"),
    (_upstream_proxy.HttpUpstreamProxy.__init__, "self, ctx, tunnel_conn, send_connect"),
    (_upstream_proxy.HttpUpstreamProxy.receive_handshake_data, "self, data"),
    (tls.ServerTLSLayer.__init__, "self, context, conn"),
    (tls.TLSLayer.on_handshake_error, "self, err"),
    (tunnel.TunnelLayer.receive_data, "self, data"),
    (tunnel.TunnelLayer.receive_close, "self"),
    (tunnel.TunnelLayer.event_to_child, "self, event"),
    (tunnel.TunnelLayer.on_handshake_error, "self, err"),
    (mode_servers.ProxyConnectionHandler.__init__, "self, master, r, w, options, mode"),
    (mode_servers.ProxyConnectionHandler.handle_hook, "self, hook"),
    (server.ConnectionHandler.handle_client, "self"),
    (server.ConnectionHandler.handle_connection, "self, connection"),
    (server.ConnectionHandler.open_connection, "self, command"),
    (server.ConnectionHandler.drain_writers, "self"),
    (server.ConnectionHandler.on_timeout, "self"),
    (server.ConnectionHandler.wakeup, "self, request"),
    (server.ConnectionHandler.server_event, "self, event"),
    (server.ConnectionHandler.log, "self, message, level, exc_info"),
    (server.ConnectionIO.__init__, "self, handler, reader, writer"),
    (server.TimeoutWatchdog.register_activity, "self"),
    (server_hooks.ServerConnectionHookData.__init__, "self, server, client"),
    (context.Context.fork, "self"),
    (addonmanager.traverse, "chain"),
    (http1.read_request_head, "lines"),
    (http1.read_response_head, "lines"),
    (http1.expected_http_body_size, "request, response"),
    (http1.assemble_response, "response"),
    (validate.validate_headers, "message"),
    (ReceiveBuffer.maybe_extract_lines, "self"),
    (ReceiveBuffer.maybe_extract_at_most, "self, count"),
    (ReceiveBuffer.is_next_line_obviously_invalid_request_line, "self"),
    (ChunkedReader.__call__, "self, buf"),
    (ContentLengthReader.__call__, "self, buf"),
    (Http10Reader.read_eof, "self"),
    (events.OpenConnectionCompleted.__init__, "self, command, reply"),
    (events.HookCompleted.__init__, "self, command, reply"),
    (commands.RequestWakeup.__init__, "self, delay"),
    (commands.CloseTcpConnection.__init__, "self, connection, half_close"),
]


@pytest.mark.parametrize(("function", "parameters"), SIGNATURES, ids=lambda value: getattr(value, "__qualname__", ""))
def test_a_function_has_the_parameters_that_we_know(function: Callable[..., Any], parameters: str) -> None:
    assert ", ".join(inspect.signature(function).parameters) == parameters


OVERRIDDEN: list[tuple[type, tuple[str, ...]]] = [
    (
        dial.PacedConnectionHandler,
        ("handle_client", "handle_hook", "drain_writers", "on_timeout", "wakeup", "open_connection"),
    ),
    (our_layer.PacedHttpLayer, ("_handle_event", "make_stream", "get_connection", "register_connection")),
    (border.Border, ("handle_event",)),
    (
        stream.PacedHttpStream,
        (
            "start_request_stream",
            "make_server_connection",
            "state_wait_for_response_headers",
            "check_invalid",
            "handle_protocol_error",
        ),
    ),
    (flowing.Flowing, ("start_response_stream", "state_stream_response_body")),
    (answering.Answering, ("send_response",)),
    (origins.OriginClient, ("_handle_event",)),
    (origins._OriginTls, ("on_handshake_error", "event_to_child", "receive_close")),
    (tunnels.Tunnels, ("handle_connect",)),
    (cutting_off.CuttingOff, ("_handle_event", "passthrough")),
    (origins._ParentProxy, ("start_handshake", "receive_handshake_data", "on_handshake_error")),
    (http2.PacedHttp2Client, ("_handle_event", "handle_h2_event")),
    (http2_server.PacedHttp2Server, ("__init__", "_handle_event", "handle_h2_event")),
    (our_http1.PacedHttp1Client, ("send", "read_headers", "read_body", "mark_done")),
    (http1_server.PacedHttp1Server, ("_handle_event", "send", "read_headers", "read_body", "wait", "mark_done")),
]


@pytest.mark.parametrize(("ours", "names"), OVERRIDDEN, ids=lambda value: getattr(value, "__name__", ""))
def test_what_we_override_is_there_to_be_overridden(ours: type, names: tuple[str, ...]) -> None:
    stock = [base for base in ours.__mro__ if base.__module__.startswith("mitmproxy")]
    for name in names:
        assert any(name in vars(base) for base in ours.__mro__ if base not in stock), f"we do not override {name}"
        assert any(name in vars(base) for base in stock), f"mitmproxy has no {name} any more"


def test_layers_have_the_attributes_that_we_use() -> None:
    made = make_context()
    plain = http.HttpLayer(made, http.HTTPMode.regular)
    for mapping in (plain.connections, plain.streams, plain.command_sources, plain.waiting_for_establishment):
        assert dict(mapping) == {}
    one = http.HttpStream(made, 1)
    assert one._paused is None
    assert list(one._paused_event_queue) == []
    assert one.client_state == one.server_state == one.state_uninitialized
    server_side = _http1.Http1Server(made)
    assert (server_side.stream_id, server_side.request, server_side.response) == (1, None, None)
    assert (server_side.request_done, server_side.response_done, bytes(server_side.buf)) == (False, False, b"")
    assert "stream_queue: collections.defaultdict[int, list[Event]]" in inspect.getsource(_http2.Http2Client)
    buffered = _http_h2.BufferedH2Connection(_http2.Http2Server.h2_conf)
    assert dict(buffered.stream_buffers) == {}
    assert buffered._frame_dispatch_table[hyperframe.frame.GoAwayFrame] == buffered._receive_goaway_frame
    source = inspect.getsource(_http2.Http2Client)
    assert "our_stream_id: dict[int, int]" in source
    assert "their_stream_id: dict[int, int]" in source
    assert "streams: dict[int, StreamState]" in inspect.getsource(_http2.Http2Connection)
    client_side = _http1.Http1Client(made)
    assert (client_side.stream_id, client_side.conn) == (None, made.server)


def test_hooks_are_blocking_commands_with_one_argument() -> None:
    for hook in (_hooks.HttpRequestHeadersHook, _hooks.HttpResponseHeadersHook, _hooks.HttpErrorHook):
        assert issubclass(hook, commands.StartHook)
        assert hook.blocking is True
        assert list(inspect.signature(hook.__init__).parameters) == ["self", "flow"]
    assert phases.PaceHoldHook.name == "pace_hold"
    assert list(inspect.signature(phases.PaceHoldHook.__init__).parameters) == ["self", "exchange"]


def test_a_handler_has_the_attributes_that_we_use() -> None:
    source = inspect.getsource(server.ConnectionHandler.__init__)
    for name in ("self.transports", "self.timeout_watchdog", "self.wakeup_timer", "self.client"):
        assert f"{name} = " in source
    watchdog = inspect.getsource(server.TimeoutWatchdog.__init__)
    assert "self.blocker = 0" in watchdog
    assert "self.can_timeout = asyncio.Event()" in watchdog
    # Handlers are made by this name, with these arguments.
    assert "handler = ProxyConnectionHandler(\n" in inspect.getsource(mode_servers.ServerInstance.handle_stream)


def test_connection_states_are_what_we_take_them_for() -> None:
    state = connection.ConnectionState
    assert state.OPEN == state.CAN_READ | state.CAN_WRITE
    assert state.CLOSED.value == 0


def test_error_codes_are_those_that_we_know() -> None:
    assert {code.name for code in _events.ErrorCode} == {
        "GENERIC_CLIENT_ERROR",
        "GENERIC_SERVER_ERROR",
        "REQUEST_TOO_LARGE",
        "RESPONSE_TOO_LARGE",
        "CONNECT_FAILED",
        "PASSTHROUGH_CLOSE",
        "KILL",
        "HTTP_1_1_REQUIRED",
        "DESTINATION_UNKNOWN",
        "CLIENT_DISCONNECTED",
        "CANCEL",
        "REQUEST_VALIDATION_FAILED",
        "RESPONSE_VALIDATION_FAILED",
    }
