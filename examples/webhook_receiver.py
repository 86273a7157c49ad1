"""Receives webhooks: verifies each, passes over what it has seen, prints what happened.

make up
.venv/bin/coatcheck webhooks create http://127.0.0.1:9000/hook     # prints the secret
WEBHOOK_SECRET=whsec_... .venv/bin/python examples/webhook_receiver.py 9000

WEBHOOK_SECRET may hold two secrets with a space between, while one is rotated.
"""

import os
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from standardwebhooks import Webhook, WebhookVerificationError

WEBHOOKS = [Webhook(secret) for secret in os.environ["WEBHOOK_SECRET"].split()]
SEEN: set[str] = set()  # a real receiver keeps them where they outlive it, for some days


class Receiver(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        told = self.verified(body)
        if told is None:
            self.answer(400)
            return
        message = self.headers["webhook-id"]
        if message not in SEEN:
            SEEN.add(message)
            print(told["type"], subject(told.get("data", told)), flush=True)
        self.answer(204)

    def verified(self, body: bytes) -> dict | None:
        """What is told, if one of our secrets has signed it."""
        for webhook in WEBHOOKS:
            try:
                return webhook.verify(body, dict(self.headers))
            except WebhookVerificationError:
                pass  # perhaps with the other one
        return None

    def answer(self, status: int) -> None:
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing of the requests themselves."""


def subject(data: dict) -> str:
    """The id of what happened, as its surface spells it."""
    return next(
        (data[name] for name in ("id", "jobId", "job_id", "endpoint_id") if name in data), ""
    )


if __name__ == "__main__":
    port = int(sys.argv[1]) if len(sys.argv) > 1 else 9000
    ThreadingHTTPServer(("127.0.0.1", port), Receiver).serve_forever()
