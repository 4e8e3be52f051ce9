"""What httplint (https://github.com/mnot/httplint) says against a response: RFC 9110 and its kin, by another hand."""

import time

from httplint import HttpRequestLinter, HttpResponseLinter, levels

from tests.support.clients import Answer


def faults(answer: Answer, *, method: str = "GET", target: str = "/", version: str = "HTTP/1.1") -> list[str]:
    """Its warnings and worse, with what they are about: `Retry-After: The header's syntax isn't valid.`"""
    now = time.time()
    request = HttpRequestLinter(start_time=now)
    request.process_request_topline(method.encode(), target.encode(), version.encode())
    response = HttpResponseLinter(start_time=now, _related=request)
    response.is_head_response = method == "HEAD"
    received_version, status, *phrase = answer.head.split(b"\r\n", 1)[0].split(b" ", 2)
    response.process_response_topline(received_version, status, *phrase)
    response.process_headers([(name.encode("latin-1"), value.encode("latin-1")) for name, value in answer.fields])
    response.feed_content(answer.body)
    response.finish_content(True)
    return [
        f"{note.subject}: {note.summary}"
        for top in response.notes
        for note in (top, *top.subnotes)
        if note.level in (levels.WARN, levels.BAD)
    ]
