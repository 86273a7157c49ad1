"""The guide to scraping, run as it stands there, but for the page that it fetches."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.e2e.test_curl_guide import answers, commands
from tests.e2e.test_up import StartUp
from tests.markdown import pages

DOCUMENTED_PAGE = "https://example.com/"


class OnePage(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", "5")
        self.end_headers()
        self.wfile.write(b"hello")

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def page() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), OnePage)
    serving = threading.Thread(target=server.serve_forever)
    serving.start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    serving.join()
    server.server_close()


@pytest.mark.slow
def test_every_command_of_the_guide_to_scraping_works(
    start_up: StartUp, tmp_path: Path, page: str
) -> None:
    up = start_up(COATCHECK_EGRESS_ALLOW="127.0.0.1")
    up.wait_until_ready()
    steps = [step.replace(DOCUMENTED_PAGE, page) for step in commands("scrape")]
    _, fetched, many = answers(up, tmp_path, steps)

    job = json.loads(fetched)
    assert (job["status"], job["service_id"]) == ("completed", "scrape")
    result = job["result_summary"]
    assert (result["url"], result["bytes"], result["artifact"]) == (page, 5, "body")
    batch = json.loads(many)
    assert (batch["status"], batch["counts"]["succeeded"]) == ("completed", 2)
    (guide,) = [each for each in pages("docs/how-to") if each.path.stem == "scrape"]
    (shown,) = [json.loads(block.text) for block in guide.blocks("json")]
    assert shown.keys() == result.keys()
