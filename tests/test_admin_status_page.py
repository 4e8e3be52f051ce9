"""The files of the status page: what is served, and what a browser may do with them."""

import pytest

from proxy_addon.admin.server import AdminServer
from proxy_addon.admin.status_page import page_routes
from tests.support.admin import Answer, ask, run


def served(path: str) -> Answer:
    answers: list[Answer] = []

    async def scenario() -> None:
        server = AdminServer(page_routes())
        address = await server.start("127.0.0.1", 0)
        answers.append(await ask(address, path))
        await server.stop()

    run(scenario())
    return answers[0]


@pytest.mark.parametrize(
    ("path", "media_type"),
    [
        ("/", "text/html; charset=utf-8"),
        ("/page.css", "text/css; charset=utf-8"),
        ("/page.js", "text/javascript; charset=utf-8"),
    ],
)
def test_a_file_is_served_for_this_page_alone(path: str, media_type: str) -> None:
    answer = served(path)
    assert (answer.status, answer.fields["content-type"]) == (200, media_type)
    policy = answer.fields["content-security-policy"].split("; ")
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert not [part for part in policy if "unsafe" in part or "http" in part or "*" in part]
    assert answer.fields["cross-origin-resource-policy"] == "same-origin"
    assert answer.fields["referrer-policy"] == "no-referrer"


@pytest.mark.parametrize("path", ["/index.html", "/page/page.css", "/../server.py", "/%2e%2e/server.py", "/pageXjs"])
def test_nothing_else_is_served(path: str) -> None:
    assert served(path).status == 404
