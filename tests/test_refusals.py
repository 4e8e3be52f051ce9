"""The layer's own texts."""

from proxy_addon.model import ErrorName
from proxy_addon.refusals import internal_error_response, refusal


def test_a_refusal_says_what_happened_and_ends_the_connection() -> None:
    response = refusal(431, ErrorName.HTTP_REQUEST_ERROR, "Too long.", 1000.0)
    assert response.status_code == 431
    assert response.raw_content == b"Too long.\n"
    assert response.headers.fields == (
        (b"Content-Type", b"text/plain; charset=utf-8"),
        (b"X-Content-Type-Options", b"nosniff"),
        (b"Cache-Control", b"no-store"),
        (b"Content-Length", b"10"),
        (b"Date", b"Thu, 01 Jan 1970 00:16:40 GMT"),
        (b"Proxy-Status", b"paceproxy; error=http_request_error"),
        (b"Connection", b"close"),
    )


def test_a_text_of_any_kind_can_be_sent() -> None:
    assert refusal(400, ErrorName.HTTP_REQUEST_ERROR, "ä\udc80", 0.0).raw_content == b"\xc3\xa4?\n"


def test_an_error_of_ours_is_a_500() -> None:
    response = internal_error_response(0.0)
    assert (response.status_code, response.reason) == (500, "Internal Server Error")
    assert response.headers["Proxy-Status"] == "paceproxy; error=proxy_internal_error"
