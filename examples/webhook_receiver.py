"""Receives webhooks: verifies each, ignores repetitions, and prints the events.

make up
.venv/bin/coatcheck webhooks create http://127.0.0.1:9000/hook     # prints the secret
WEBHOOK_SECRET=whsec_... .venv/bin/python examples/webhook_receiver.py 9000

During a rotation, WEBHOOK_SECRET may have two secrets with a space between them.
"""

import os
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from standardwebhooks import Webhook, WebhookVerificationError

WEBHOOKS = [Webhook(secret) for secret in os.environ["WEBHOOK_SECRET"].split()]
SEEN: set[str] = set()  # a real receiver stores them for some days


class Receiver(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        event = self.verified(body)
        if event is None:
            self.answer(400)
            return
        message = self.headers["webhook-id"]
        if message not in SEEN:
            SEEN.add(message)
            print(event["type"], subject(event.get("data", event)), flush=True)
        self.answer(204)

    def verified(self, body: bytes) -> dict | None:
        """The event, if it was signed with one of our secrets."""
        for webhook in WEBHOOKS:
            try:
                return webhook.verify(body, dict(self.headers))
            except WebhookVerificationError:
                pass  # try the other secret
        return None

    def answer(self, status: int) -> None:
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Do not log requests."""


def subject(data: dict) -> str:
    """The id of the event's subject, under its product's name for it."""
    return next(
        (data[name] for name in ("id", "jobId", "job_id", "endpoint_id") if name in data), ""
    )


if __name__ == "__main__":
    port = int(sys.argv[1]) if len(sys.argv) > 1 else 9000
    ThreadingHTTPServer(("127.0.0.1", port), Receiver).serve_forever()
