"""Domains named by a language model: a server of the test's own, asked over a socket."""

from __future__ import annotations

import json
import logging
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest

from coatcheck.domain.retry import Backoff
from coatcheck.products.graphs import naming
from coatcheck.products.graphs.analysis import DOMAINS, REST
from coatcheck.settings import Settings
from coatcheck_codegraph.domain_document import DomainEntry
from tests.deployment import Deployment
from tests.products.graphs.archives import post, zipped
from tests.products.graphs.model import Model, Shown, completion, serving_a_model

KEY = "sk-only-for-this-test"
CANARY = "canary-7f31c5"
PROGRAM = {
    "shop/orders/cart.py": f'# {CANARY}\nclass Cart:\n    """{CANARY}"""\n    note = "{CANARY}"\n',
    "shop/orders/checkout.py": "from shop.orders.cart import Cart\n\n\ndef check_out() -> None:\n"
    f'    Cart("{CANARY}")\n',
    "shop/mail/letters.py": f"def write(text='{CANARY}'):\n    return text\n",
    "shop/mail/post.py": "from shop.mail.letters import write\n\n\ndef send():\n    write()\n",
}


ATTEMPTS = 3


@pytest.fixture
def model() -> Iterator[Model]:
    with serving_a_model() as serving:
        yield serving


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model that failed is asked again without a pause."""
    monkeypatch.setattr(naming, "NAMING_BACKOFF", Backoff(0.0, 0.0, 0.0))


def renaming(shown: Shown) -> str:
    return completion(
        {
            "domains": [
                {"id": each["id"], "name": f"Part {each['id']}", "description": "It is a part."}
                for each in shown
            ]
        }
    )


# The whole way: an archive, a worker, a model


async def test_a_model_names_and_describes_the_domains_and_sees_no_source_text(
    dsn: str, tmp_path: Path, model: Model
) -> None:
    model.says = renaming
    llm = {"graphs_llm_url": model.url, "graphs_llm_model": "small", "graphs_llm_key": KEY}
    async with Deployment(dsn, tmp_path, **llm) as deployment:
        await deployment.start_graphs_worker()
        answer = await post(
            deployment.http, zipped(PROGRAM), "k", operation="domain", Prefer="wait=60"
        )
    result = answer.json()["result"]
    assert result["domainNaming"] == {"by": "llm", "attempts": 1}
    domains = result["domains"]
    assert len(domains) == 2
    for domain in domains:
        assert domain["name"] == f"Part {domain['id']}"
        assert domain["description"] == "It is a part."
        assert domain["namedBy"] == "llm"
        assert "samplePaths" not in domain

    (asked,) = model.asked
    assert asked.path == "/v1/chat/completions"
    assert asked.authorization == f"Bearer {KEY}"
    assert asked.body["model"] == "small"
    assert {path for each in asked.shown for path in each["paths"]} == set(PROGRAM)
    assert {each["folder"] for each in asked.shown} == {"shop/orders", "shop/mail"}
    assert {"cart", "checkout"} <= {word for each in asked.shown for word in each["words"]}
    assert CANARY.encode() not in asked.raw
    assert CANARY not in answer.text


async def test_a_model_that_fails_does_not_fail_the_job(
    dsn: str, tmp_path: Path, model: Model
) -> None:
    model.status = 500
    llm = {"graphs_llm_url": model.url, "graphs_llm_model": "small"}
    async with Deployment(dsn, tmp_path, **llm) as deployment:
        await deployment.start_graphs_worker()
        answer = await post(
            deployment.http, zipped(PROGRAM), "k", operation="supermodel", Prefer="wait=60"
        )
    body = answer.json()
    assert body["status"] == "completed"
    assert {domain["name"] for domain in body["result"]["domains"]} == {"Orders", "Mail"}
    assert {domain["namedBy"] for domain in body["result"]["domains"]} == {"clustering"}
    assert body["result"]["domainNaming"] == {
        "by": "clustering",
        "attempts": ATTEMPTS,
        "reason": "model_failed",
        "message": "The model that names domains answered 500; they have their plain names.",
    }
    assert len(model.asked) == ATTEMPTS
    assert model.asked[0].authorization is None


async def test_operations_without_domains_ask_nobody(
    dsn: str, tmp_path: Path, model: Model
) -> None:
    llm = {"graphs_llm_url": model.url, "graphs_llm_model": "small"}
    async with Deployment(dsn, tmp_path, **llm) as deployment:
        await deployment.start_graphs_worker()
        answer = await post(
            deployment.http, zipped(PROGRAM), "k", operation="call", Prefer="wait=60"
        )
    assert answer.json()["status"] == "completed"
    assert model.asked == []


# What a model may say


def entry(number: int, **fields: Any) -> DomainEntry:
    return DomainEntry(
        id=f"domain-{number}",
        name=f"Plain {number}",
        description="2 files.",
        path=f"folder_{number}",
        keywords=["word"],
        file_count=2,
        function_count=1,
        uses=[],
        named_by="clustering",
        sample_paths=[f"folder_{number}/a.py"],
        **fields,
    )


async def named_by(url: str, folder: Path, number: int = 2) -> list[dict[str, Any]]:
    """What becomes of so many domains that an analysis has found."""
    domains: list[dict[str, Any]] = (await completed(url, folder, number))["domains"]
    return domains


async def completed(url: str, folder: Path, number: int = 2) -> dict[str, Any]:
    """The result of an analysis that has found so many domains."""
    domains = [entry(at + 1) for at in range(number)]
    (folder / DOMAINS).write_bytes(msgspec.json.encode(domains))
    (folder / REST).write_bytes(b'{"stats":{"nodeCount":3}}')
    settings = Settings(
        database_url="", graphs_llm_url=url, graphs_llm_model="small", graphs_llm_key=KEY
    )
    result: dict[str, Any] = json.loads((await naming.complete(settings, folder)).read_bytes())
    assert result["stats"] == {"nodeCount": 3}
    assert all("samplePaths" not in domain for domain in result["domains"])
    return result


def names(domains: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(domain["name"], domain["namedBy"]) for domain in domains]


PLAIN = [("Plain 1", "clustering"), ("Plain 2", "clustering")]


@pytest.mark.parametrize(
    "says",
    [
        "no JSON",
        "{}",
        "[]",
        '{"choices": []}',
        '{"choices": [{"message": {"content": null}}]}',
        completion("I would call them Orders and Mail."),
        completion([]),
        completion({"domains": "Orders"}),
        completion({"domains": [{"id": "domain-1"}]}),
        completion({"domains": [{"id": 1, "name": "Orders"}]}),
        completion({"domains": [{"id": "domain-9", "name": "Orders"}]}),
        completion({"domains": [{"id": "domain-1", "name": "  "}]}),
        completion({"domains": [{"id": "domain-1", "name": "a\x00b"}]}),
        completion({"domains": [{"id": "domain-1", "name": "a\u202eb"}]}),
        completion({"domains": [{"id": "domain-1", "name": "Plain 2"}]}),
        completion({"domains": [{"id": "domain-1", "name": "Orders"}]})
        + " " * naming.ANSWER_BYTES_MAX,
    ],
)
async def test_what_makes_no_sense_leaves_the_plain_names(
    model: Model, tmp_path: Path, says: str
) -> None:
    model.says = lambda _: says
    result = await completed(model.url, tmp_path)
    assert names(result["domains"]) == PLAIN
    said = result["domainNaming"]
    assert (said["by"], said["attempts"]) == ("clustering", len(model.asked))
    # Asked once more, it would say once more what fits no domain.
    expected = {1: "answer_unusable", ATTEMPTS: "answer_invalid"}
    assert said["reason"] == expected[len(model.asked)]


@pytest.mark.parametrize(
    ("status", "reason", "attempts"),
    [
        (302, "model_refused", 1),
        (401, "model_refused", 1),
        (429, "model_failed", ATTEMPTS),
        (500, "model_failed", ATTEMPTS),
    ],
)
async def test_an_answer_that_is_no_success_leaves_the_plain_names(
    model: Model, tmp_path: Path, status: int, reason: str, attempts: int
) -> None:
    model.says, model.status = renaming, status
    result = await completed(model.url, tmp_path)
    assert names(result["domains"]) == PLAIN
    assert result["domainNaming"] == {
        "by": "clustering",
        "attempts": attempts,
        "reason": reason,
        "message": f"The model that names domains answered {status}; they have their plain names.",
    }
    assert len(model.asked) == attempts


async def test_a_model_that_cannot_be_reached_leaves_the_plain_names(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    result = await completed(f"http://127.0.0.1:{port}/v1", tmp_path)
    assert names(result["domains"]) == PLAIN
    assert result["domainNaming"]["reason"] == "model_unreachable"


@pytest.mark.parametrize(
    "trouble",
    [429, 500, 503, "no JSON", '{"choices": []}', completion("Orders and Mail")],
)
async def test_a_model_that_fails_for_a_moment_is_asked_again(
    model: Model, tmp_path: Path, trouble: int | str
) -> None:
    model.says, model.first = renaming, [trouble, trouble]
    result = await completed(model.url, tmp_path)
    assert {domain["namedBy"] for domain in result["domains"]} == {"llm"}
    assert result["domainNaming"] == {"by": "llm", "attempts": 3}
    assert len(model.asked) == 3


async def test_a_model_that_did_not_answer_in_time_is_asked_again(
    model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(naming, "ANSWER_SECONDS_MAX", 3.0)  # enough to be asked in a crowd
    model.says, model.first = renaming, [None]
    result = await completed(model.url, tmp_path)
    assert result["domainNaming"] == {"by": "llm", "attempts": 2}


async def test_where_no_model_is_set_the_result_says_so(tmp_path: Path) -> None:
    result = await completed("", tmp_path)
    assert names(result["domains"]) == PLAIN
    assert result["domainNaming"] == {
        "by": "clustering",
        "reason": "not_configured",
        "message": "No model for naming domains is configured.",
    }


@pytest.mark.parametrize(("asked", "seconds"), [("7", 7.0), ("3600", 30.0)])
def test_a_busy_model_says_when_to_come_back(asked: str, seconds: float) -> None:
    request = httpx2.Request("POST", "http://model.example/")
    answer = httpx2.Response(429, headers={"Retry-After": asked}, request=request)
    with pytest.raises(httpx2.HTTPStatusError) as refused:
        answer.raise_for_status()
    failure = naming.failure_of(refused.value)
    assert (failure.is_transient, failure.after) == (True, seconds)


async def test_a_model_that_does_not_answer_is_not_waited_for(
    model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(naming, "ANSWER_SECONDS_MAX", 2.0)  # enough to be asked in a crowd
    model.holding = True
    result = await completed(model.url, tmp_path)
    assert names(result["domains"]) == PLAIN
    assert result["domainNaming"]["reason"] == "model_timed_out"
    assert len(model.asked) == ATTEMPTS


async def test_an_answer_that_trickles_in_for_ever_is_not_waited_for(
    model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(naming, "ANSWER_SECONDS_MAX", 2.0)  # enough to be asked in a crowd
    model.trickling = True
    result = await completed(model.url, tmp_path)
    assert names(result["domains"]) == PLAIN
    assert result["domainNaming"]["reason"] == "model_timed_out"
    assert len(model.asked) == ATTEMPTS


async def test_only_what_is_named_is_renamed(model: Model, tmp_path: Path) -> None:
    said = [
        {"id": "domain-2", "name": " Order\n handling ", "description": "Takes\n orders."},
        {"id": "domain-7", "name": "Invented"},
    ]
    model.says = lambda _: completion({"domains": said})
    first, second = await named_by(model.url, tmp_path)
    assert (first["name"], first["namedBy"]) == PLAIN[0]
    assert first["description"] == "2 files."
    assert (second["name"], second["namedBy"]) == ("Order handling", "llm")
    assert second["description"] == "Takes orders."


async def test_no_two_domains_get_one_name(model: Model, tmp_path: Path) -> None:
    said = [{"id": f"domain-{at}", "name": "Orders"} for at in (1, 2)]
    model.says = lambda _: completion({"domains": said})
    assert names(await named_by(model.url, tmp_path)) == [("Orders", "llm"), PLAIN[1]]


async def test_long_words_are_cut_and_what_cannot_be_printed_is_left_out(
    model: Model, tmp_path: Path
) -> None:
    said = [
        {"id": "domain-1", "name": "n" * 1_000, "description": "d" * 10_000},
        {"id": "domain-2", "name": "Mail", "description": "It \x00 is."},
    ]
    model.says = lambda _: completion({"domains": said})
    first, second = await named_by(model.url, tmp_path)
    assert (first["name"], first["description"]) == ("n" * 80, "d" * 500)
    assert (second["name"], second["description"]) == ("Mail", "2 files.")


async def test_a_name_without_a_description_keeps_the_plain_one(
    model: Model, tmp_path: Path
) -> None:
    model.says = lambda _: completion({"domains": [{"id": "domain-1", "name": "Mail"}]})
    first, _ = await named_by(model.url, tmp_path)
    assert (first["name"], first["description"]) == ("Mail", "2 files.")


async def test_of_very_many_domains_the_model_names_the_largest(
    model: Model, tmp_path: Path
) -> None:
    model.says = renaming
    found = await named_by(model.url, tmp_path, number=100)
    assert len(model.asked[0].shown) == 60
    assert [domain["namedBy"] for domain in found] == ["llm"] * 60 + ["clustering"] * 40


async def test_neither_the_token_nor_what_was_sent_is_logged(
    model: Model, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    model.status = 500
    await named_by(model.url, tmp_path)
    assert "domains keep their plain names" in caplog.text
    assert "answered 500" in caplog.text
    assert KEY not in caplog.text
    assert "folder_1" not in caplog.text
