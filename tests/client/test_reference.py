from __future__ import annotations

import dataclasses
import inspect
import re

import pytest

import coatcheck.client
from coatcheck.client import (
    ApiKey,
    ApiKeys,
    Batch,
    BatchArtifact,
    BatchBadLine,
    BatchCounts,
    Batches,
    BatchExport,
    BatchIngest,
    BatchRun,
    BatchStatus,
    BatchTask,
    BulkOutcome,
    BulkOutcomes,
    Caller,
    DeadLetter,
    Event,
    FailureCount,
    GraphJob,
    Graphs,
    Job,
    JobArtifact,
    JobBlocker,
    JobDetails,
    JobDetailsPage,
    JobEta,
    JobExplanation,
    JobLogEntry,
    Jobs,
    JobUrls,
    KeyRate,
    LaneBacklog,
    Overview,
    OverviewPoint,
    Page,
    Progress,
    QueueBacklog,
    TimelineEntry,
    UsageDay,
    WebhookDelivery,
    WebhookEndpoint,
    WebhookEvent,
    WebhookMessage,
    Webhooks,
    WebhookSecret,
    WorkerStatus,
)
from tests.markdown import REPOSITORY

REFERENCE = (REPOSITORY / "docs" / "reference" / "client.md").read_text()


@pytest.mark.parametrize("name", coatcheck.client.__all__)
def test_every_name_of_the_client_says_what_it_is(name: str) -> None:
    assert inspect.getdoc(getattr(coatcheck.client, name))


def test_every_field_and_method_of_a_job_is_in_the_reference() -> None:
    members = [name for name, _ in inspect.getmembers(Job) if not name.startswith("_")]
    assert {"id", "result", "wait", "raw"} <= set(members)
    for name in set(members) - {"learn"}:
        assert re.search(rf"`(job\.)?{name}\b", REFERENCE), name


def test_every_field_and_method_of_a_batch_is_in_the_reference() -> None:
    members = [name for name, _ in inspect.getmembers(Batch) if not name.startswith("_")]
    assert {"id", "counts", "wait", "raw"} <= set(members)
    for name in set(members) - {"learn"}:
        assert re.search(rf"`{name}\b", REFERENCE), name


@pytest.mark.parametrize("name", [name for name in vars(Batches) if not name.startswith("_")])
def test_every_method_for_batches_is_in_the_reference_with_its_arguments(name: str) -> None:
    said = re.search(rf"`batches\.{name}\((.*?)\)`", REFERENCE)
    assert said is not None
    names = [argument.partition("=")[0].strip() for argument in said[1].split(",")]
    taken = [
        each for each in inspect.signature(getattr(Batches, name)).parameters if each != "self"
    ]
    assert [each for each in names if each not in ("*", "")] == taken


@pytest.mark.parametrize("name", [name for name in vars(Webhooks) if not name.startswith("_")])
def test_every_method_for_webhooks_is_in_the_reference_with_its_arguments(name: str) -> None:
    said = re.search(rf"`webhooks\.{name}\((.*?)\)`", REFERENCE)
    assert said is not None
    names = [argument.partition("=")[0].strip() for argument in said[1].split(",")]
    taken = [
        each for each in inspect.signature(getattr(Webhooks, name)).parameters if each != "self"
    ]
    assert [each for each in names if each not in ("*", "")] == taken


@pytest.mark.parametrize(
    ("part", "name"),
    [
        (part, name)
        for part in (ApiKeys, Graphs, Jobs)
        for name in vars(part)
        if not name.startswith("_")
    ],
)
def test_every_method_for_keys_graphs_and_jobs_is_in_the_reference_with_its_arguments(
    part: type, name: str
) -> None:
    attribute = re.sub(r"\B([A-Z])", r"_\1", part.__name__).lower()
    said = re.search(rf"`{attribute}\.{name}\((.*?)\)`", REFERENCE)
    assert said is not None
    names = [argument.partition("=")[0].strip() for argument in said[1].split(",")]
    taken = [each for each in inspect.signature(getattr(part, name)).parameters if each != "self"]
    assert [each for each in names if each not in ("*", "")] == taken


@pytest.mark.parametrize(
    "kind",
    [
        ApiKey,
        BatchArtifact,
        BatchBadLine,
        BatchCounts,
        BatchExport,
        BatchIngest,
        BatchRun,
        BatchStatus,
        BatchTask,
        BulkOutcome,
        BulkOutcomes,
        Caller,
        DeadLetter,
        Event,
        FailureCount,
        QueueBacklog,
        GraphJob,
        JobArtifact,
        JobBlocker,
        JobDetails,
        JobDetailsPage,
        JobEta,
        JobExplanation,
        JobLogEntry,
        JobUrls,
        KeyRate,
        LaneBacklog,
        Overview,
        OverviewPoint,
        Page,
        Progress,
        TimelineEntry,
        UsageDay,
        WorkerStatus,
        WebhookDelivery,
        WebhookEndpoint,
        WebhookEvent,
        WebhookMessage,
        WebhookSecret,
    ],
)
def test_every_field_of_an_answer_is_in_the_reference(kind: type) -> None:
    names = (
        [field.name for field in dataclasses.fields(kind)]
        if dataclasses.is_dataclass(kind)
        else list(inspect.get_annotations(kind))
    )
    assert names
    for name in names:
        assert re.search(rf"[`(, ]{name}\b", REFERENCE), name
