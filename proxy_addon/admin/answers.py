"""Answers in JSON, errors included: `{"error": "what is wrong, and what to do"}`."""

import json
from http import HTTPStatus

from proxy_addon.admin.server import AdminHandler


class JsonHandler(AdminHandler):
    """What all routes under `/api/` have in common."""

    def answer(self, status: HTTPStatus, text: str) -> None:
        self.send({"error": text}, status)

    def send(self, document: object, status: HTTPStatus = HTTPStatus.OK) -> None:
        """Answer with this document, and be done."""
        self.set_status(status)
        self.set_header("Content-Type", "application/json")
        self.finish(json.dumps(document) + "\n")
