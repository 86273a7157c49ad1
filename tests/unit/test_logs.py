from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import asyncpg
import pytest
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser

from coatcheck.domain import ids
from coatcheck.telemetry import context
from coatcheck.telemetry.logs import configure_logging, redact

logger = logging.getLogger("coatcheck.tests")


@pytest.fixture(autouse=True)
def restored_logging() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    # A server that another test ran in this process may have set its own logger's level.
    server = logging.getLogger("uvicorn.error")
    server_level = server.level
    server.setLevel(logging.NOTSET)
    yield
    server.setLevel(server_level)
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.captureWarnings(capture=False)


@pytest.fixture
def stream() -> io.StringIO:
    written = io.StringIO()
    configure_logging("info", "json", written)
    return written


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_line_is_one_json_object_with_its_extras(stream: io.StringIO) -> None:
    logger.info("claimed %d jobs", 3, extra={"lane": "urgent", "seconds": 0.25})
    [line] = lines(stream)
    time = line.pop("time")
    assert time.endswith("Z")
    assert line == {
        "level": "info",
        "logger": "coatcheck.tests",
        "message": "claimed 3 jobs",
        "request_id": None,
        "job_id": None,
        "lane": "urgent",
        "seconds": 0.25,
    }


def test_every_line_names_the_request_and_the_job_it_was_written_for(stream: io.StringIO) -> None:
    job_id = ids.new_id()
    request_token = context.request_id.set("req-1")
    job_token = context.job_id.set(job_id)
    try:
        logging.getLogger("some.library").warning("odd")
    finally:
        context.job_id.reset(job_token)
        context.request_id.reset(request_token)
    logger.info("after")
    first, second = lines(stream)
    assert (first["request_id"], first["job_id"]) == ("req-1", ids.to_text(job_id))
    assert (second["request_id"], second["job_id"]) == (None, None)


def test_an_exception_stays_on_its_line_and_loses_its_credentials(stream: io.StringIO) -> None:
    try:
        raise ConnectionError("cannot reach postgresql://me:hunter2@db/x")
    except ConnectionError:
        logger.exception("failed at %s", "https://key:hunter2@host/path")
    [line] = lines(stream)
    assert "ConnectionError: cannot reach postgresql://***@db/x" in line["exception"]
    assert line["message"] == "failed at https://***@host/path"
    assert "hunter2" not in stream.getvalue()


def test_bytes_show_only_their_size(stream: io.StringIO) -> None:
    logger.info("stored", extra={"payload": b"customer data"})
    [line] = lines(stream)
    assert line["payload"] == "<13 bytes>"


def test_a_value_json_does_not_know_does_not_lose_the_line(stream: io.StringIO) -> None:
    logger.info("odd", extra={"error": ValueError("at s3://k:s@b"), "name_of_file": "\udcff"})
    [line] = lines(stream)
    assert line["message"] == "odd"
    assert "s3://***@b" in line["error"]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("postgresql://u:p@h:5432/d", "postgresql://***@h:5432/d"),
        ("postgresql://u:p/w@h/d?x=1", "postgresql://***@h/d?x=1"),
        ("https://h/b?X-Amz-Signature=abc&x=1", "https://h/b?X-Amz-Signature=***&x=1"),
        ("https://h/b?sv=1&sig=abc", "https://h/b?sv=1&sig=***"),
        ("postgresql://u@/d?password=p&host=/s", "postgresql://***@/d?password=***&host=/s"),
        ("mail me@example.com about https://h/@me", "mail me@example.com about https://h/@me"),
        ("no secret here", "no secret here"),
    ],
)
def test_credentials_in_urls_are_hidden_and_the_rest_is_kept(text: str, shown: str) -> None:
    assert redact(text) == shown


async def test_values_that_database_errors_quote_are_hidden(dsn: str) -> None:
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute("CREATE TEMP TABLE t (name text CHECK (name = ''), number int)")
        with pytest.raises(asyncpg.CheckViolationError) as violated:
            await connection.execute("INSERT INTO t VALUES ($1)", "canary\nsecond line canary")
        with pytest.raises(asyncpg.DataError) as misfit:
            await connection.execute("INSERT INTO t (number) VALUES ($1)", "canary (x)")
    finally:
        await connection.close()
    for error in (violated.value, misfit.value):
        assert "canary" in str(error)
        shown = redact(f"{error}\n\nTraceback follows")
        assert "canary" not in shown
        assert "Traceback follows" in shown


def test_chatty_libraries_are_heard_from_warnings_on(stream: io.StringIO) -> None:
    for name in ("httpx2", "httpcore2.connection", "uvicorn.error"):
        logging.getLogger(name).info("HTTP Request: GET https://host/?token=abc")
        logging.getLogger(name).warning("trouble")
    assert [line["message"] for line in lines(stream)] == ["trouble"] * 3


def test_what_a_malformed_form_holds_is_not_logged(stream: io.StringIO) -> None:
    parser = MultipartParser(b"boundary")
    with pytest.raises(FormParserError):
        parser.write(b"--boundery")
    assert lines(stream) == []


def test_the_pretty_format_is_for_people_and_redacts_as_well() -> None:
    stream = io.StringIO()
    configure_logging("debug", "pretty", stream)
    logger.debug("at %s", "postgresql://u:p@h/d", extra={"lane": "bulk"})
    assert "debug     at postgresql://***@h/d  lane=bulk" in stream.getvalue()
    assert "\x1b" not in stream.getvalue()


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_auto_is_coloured_on_a_terminal_and_json_elsewhere() -> None:
    terminal, file = Terminal(), io.StringIO()
    configure_logging("info", "auto", terminal)
    logger.info("hello")
    configure_logging("info", "auto", file)
    logger.info("hello")
    assert "\x1b[32m" in terminal.getvalue()
    assert json.loads(file.getvalue())["message"] == "hello"
