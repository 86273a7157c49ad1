"""How each product is driven: its paths, its words, and how to have it wait, run, end and fail.

A driver says only what differs between products. What they all promise is in
``test_job_resource.py``, which runs over every driver.
"""

from __future__ import annotations

import secrets
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, ClassVar, Literal

import httpx2

from coatcheck import FailJob, Job, Service
from examples.tts_remote import Fault as SpeechFault
from tests.contract.job_resource.caller import Caller
from tests.products.graphs.archives import PROGRAM, form, zipped
from tests.products.speech.speech_deployment import a_wav

Work = Literal["complete", "fail", "hold"]
"""What becomes of a job once a worker has it. ``hold``: it runs until it is cancelled."""

WORDS = "words.txt"

contract = Service("contract")


@contract.post("/work", retries=0)
async def work(job: Job, text: str, work: Work = "complete") -> dict[str, str]:
    """The handler of the gateway's jobs and of the tasks of batches."""
    if work == "fail":
        raise FailJob(f"there is nothing in {text}", code="nothing_there")
    await job.progress(0.5, "half-way")
    if work == "hold":
        await job.wait_cancelled()
        job.check_cancelled()
    for number in range(3):
        await job.log(f"line {number}")
        await job.emit(f"{text} {number}")
    await job.attach(WORDS, text.encode(), media_type="text/plain")
    return {"text": text}


class Shared(Enum):
    """What the suite expects of every product, unless its driver says why it is not there."""

    DURABLE_EVENTS = auto()
    LIST = auto()
    CONSOLE = auto()
    ARTIFACTS = auto()
    LEAVES_ARTIFACTS = auto()
    LENIENT_COMPARES = auto()
    """Another payload under a known key is noticed even by who does not ask for strict handling."""
    KEY_OPTIONAL = auto()
    UNFINISHED_IS_200 = auto()
    """A plain read of a job that has not ended is 200."""
    CANCELLED_AT_ONCE = auto()
    """What no worker has yet is cancelled when the answer comes; else soon after it."""
    ENDED_CANNOT_BE_CANCELLED = auto()
    ADMINS_LIST_ALL = auto()
    PRIVATE_AMONG_ADMINS = auto()
    """Somebody else's job is not found, even by an admin of the same organisation."""
    KEY_OF_ITS_USER = auto()
    """Two users of an organisation can use the same idempotency key for different jobs."""


@dataclass(frozen=True)
class Words:
    """What a product calls the states of a job."""

    waiting: str
    running: tuple[str, ...]
    completed: str
    failed: str
    cancelled: str


ENGINE_WORDS = Words(
    "queued", ("processing", "cancel_requested"), "completed", "failed", "cancelled"
)


class Driver(ABC):
    """One product as the suite drives it."""

    product: str
    """Its name, which is the console's word for it, too."""
    id_in_ticket: str
    id_in_job: str
    state: str = "status"
    """The field that names a job's state."""
    words: Words = ENGINE_WORDS
    word_in_ticket: str | None = None
    """What it calls the state of a new job, if that is not the word for one that waits."""
    already_ended: str = "job_already_ended"
    """The code of the refusal to cancel a job that has ended."""
    services: Sequence[Service] = ()
    """What its worker serves besides the product's own."""
    lacks: ClassVar[Mapping[Shared, str]] = {}
    """What it does not have, and why: what its seed, or its reference page, says otherwise."""

    def has(self, shared: Shared) -> bool:
        return shared not in self.lacks

    @abstractmethod
    async def submit(
        self,
        caller: Caller,
        text: str = "one",
        work: Work = "complete",
        *,
        webhook: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> httpx2.Response:
        """Submit one unit of work. Another ``text`` is another payload."""

    @abstractmethod
    def jobs(self, caller: Caller) -> str:
        """The path below which its jobs are."""

    def listed(self, caller: Caller) -> str:
        """The path of the list."""
        return self.jobs(caller)

    def status(self, caller: Caller, job_id: str) -> str:
        return f"{self.jobs(caller)}/{job_id}"

    def reads(self, caller: Caller, job_id: str) -> list[str]:
        """The paths of everything about a job that can be read."""
        status = self.status(caller, job_id)
        found = [status, f"{status}/events", f"{status}/explain"]
        return [*found, f"{status}/artifacts"] if self.has(Shared.ARTIFACTS) else found

    def cancel(self, caller: Caller, job_id: str) -> str:
        return f"{self.status(caller, job_id)}/cancel"

    def told_of(self, payload: Any) -> str:
        """The id of the job that a webhook's payload is about."""
        found: str = payload["data"][self.id_in_job]
        return found

    def ended_well(self, job: Any) -> bool:
        """Whether a job shows a result."""
        return job.get("result") is not None

    def reason(self, job: Any) -> str:
        """Why a job failed."""
        found: str = job["error"]
        return found

    def lasting(self, job: Any) -> Any:
        """What two reads of a job that has ended show alike."""
        return job

    # What the suite does with any of them

    async def accepted(self, caller: Caller, *given: Any, **options: Any) -> str:
        """Submit. The id of the job, which is cancelled at the end of the test."""
        answer = await self.submit(caller, *given, **options)
        assert answer.status_code == 202, answer.text
        return self.id_of(caller, answer)

    def id_of(self, caller: Caller, answer: httpx2.Response) -> str:
        """The id of the job that an answer to a submission names."""
        body = answer.json()
        found: str = body[self.id_in_ticket] if self.id_in_ticket in body else body[self.id_in_job]
        caller.submitted.append(self.cancel(caller, found))
        return found

    async def job(self, caller: Caller, job_id: str, **query: Any) -> Any:
        """The job as it is shown."""
        answer = await caller.get(self.status(caller, job_id), params=query)
        assert answer.status_code in (200, 202), answer.text
        return answer.json()

    def __str__(self) -> str:
        return self.product


class Gateway(Driver):
    product = "gateway"
    id_in_ticket, id_in_job = "job_id", "id"
    services = (contract,)
    lacks: ClassVar = {
        Shared.KEY_OF_ITS_USER: "the seed scopes keys to the organisation",
    }

    async def submit(
        self,
        caller: Caller,
        text: str = "one",
        work: Work = "complete",
        *,
        webhook: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> httpx2.Response:
        told = {} if webhook is None else {"X-Webhook-Url": webhook}
        return await caller.post(
            f"/api/v1/orgs/{caller.org}/services/contract/async/work",
            json={"text": text, "work": work},
            headers={**told, **(headers or {})},
        )

    def jobs(self, caller: Caller) -> str:
        return f"/api/v1/orgs/{caller.org}/services/contract/jobs"

    def listed(self, caller: Caller) -> str:
        return f"/api/v1/orgs/{caller.org}/workspaces/default/hosted-services/contract/jobs"

    def ended_well(self, job: Any) -> bool:
        return job["result_summary"] is not None

    def reason(self, job: Any) -> str:
        found: str = job["last_error"]["message"]
        return found


class Batches(Driver):
    product = "batches"
    id_in_ticket = id_in_job = "id"
    words = Words("ingesting", ("running",), "completed", "failed_ingest", "cancelled")
    already_ended = "batch_already_ended"
    services = (contract,)
    lacks: ClassVar = {
        Shared.DURABLE_EVENTS: "a batch has counts; its tasks have events",
        Shared.CONSOLE: "a batch is not a job; the console shows its tasks",
        Shared.ARTIFACTS: "the tasks of a batch have artifacts, and the batch has exports",
        Shared.LEAVES_ARTIFACTS: "as above",
        Shared.CANCELLED_AT_ONCE: "a batch is cancelled once its list and its tasks are",
        Shared.PRIVATE_AMONG_ADMINS: "an admin sees all batches of the organisation",
    }

    async def submit(
        self,
        caller: Caller,
        text: str = "one",
        work: Work = "complete",
        *,
        webhook: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> httpx2.Response:
        options = {} if webhook is None else {"webhook_url": webhook}
        target = {"service": "contract", "endpoint": "/work", **options}
        if work == "fail":  # a list without a line that can be read
            return await caller.post(
                "/v1/jobs",
                params={**target, "async": "true"},
                content=b"no JSON\n",
                headers={"Content-Type": "application/x-ndjson", **(headers or {})},
            )
        tasks = [{"text": text, "work": work}]
        return await caller.post(
            "/v1/jobs", json={**target, "tasks": tasks, "async": True}, headers=headers
        )

    def jobs(self, caller: Caller) -> str:
        return "/v1/jobs"

    def ended_well(self, job: Any) -> bool:
        return bool(job["counts"]["succeeded"] == 1)

    def reason(self, job: Any) -> str:
        found: str = job["ingest"]["error"]["message"]
        return found


class Graphs(Driver):
    product = "graphs"
    id_in_ticket = id_in_job = "jobId"
    words = Words("pending", ("processing",), "completed", "failed", "failed")
    lacks: ClassVar = {
        Shared.LIST: "the seed has no list; the console has one",
        Shared.DURABLE_EVENTS: "an analysis reports progress and no lines",
        Shared.LEAVES_ARTIFACTS: "only a result that is too large for its row is an artifact",
        Shared.LENIENT_COMPARES: "an archive is read only by who asks for it",
        Shared.KEY_OPTIONAL: "the seed requires a key",
        Shared.UNFINISHED_IS_200: "the seed's envelope is 202 until the job has ended",
    }

    async def submit(
        self,
        caller: Caller,
        text: str = "one",
        work: Work = "complete",
        *,
        webhook: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> httpx2.Response:
        told = {} if webhook is None else {"X-Webhook-Url": webhook}
        given = {**told, **(headers or {})}
        if not any("Idempotency-Key" in name for name in given):
            given["Idempotency-Key"] = secrets.token_hex(8)
        # A model names the domains, and the one of the suite says nothing.
        operation = "domain" if work == "hold" else "parse"
        archive = zipped({**PROGRAM, "notes.py": f"text = {text!r}\n"}, method=0)
        if work == "fail":  # only extraction can tell
            archive = archive.replace(b"text = ", b"text : ")
        return await caller.post(f"/v1/graphs/{operation}", files=form(archive), headers=given)

    def jobs(self, caller: Caller) -> str:
        return "/v1/graphs/jobs"


class Llm(Driver):
    product = "llm"
    id_in_ticket = id_in_job = "job_id"
    state = "state"
    words = Words("queued", ("loading", "working"), "done", "failed", "failed")
    lacks: ClassVar = {
        Shared.LEAVES_ARTIFACTS: "only pictures and long answers are artifacts",
    }

    async def submit(
        self,
        caller: Caller,
        text: str = "one",
        work: Work = "complete",
        *,
        webhook: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> httpx2.Response:
        models = {"complete": "llama3.2", "fail": "unheard-of", "hold": "endless"}
        body: dict[str, Any] = {
            "model": models[work],
            "messages": [{"role": "user", "content": text}],
        }
        if webhook is not None:
            body["webhook_url"] = webhook
        return await caller.post("/jobs", json=body, headers=headers)

    def jobs(self, caller: Caller) -> str:
        return "/jobs"


class Speech(Driver):
    product = "speech"
    id_in_ticket, id_in_job = "task_id", "id"
    words = Words("pending", ("processing",), "completed", "failed", "cancelled")
    word_in_ticket = "processing"  # the seed's answer
    lacks: ClassVar = {
        Shared.DURABLE_EVENTS: "a remote speaks, and says nothing meanwhile",
        Shared.LEAVES_ARTIFACTS: "the audio belongs to the generation, which outlives the task",
        Shared.ADMINS_LIST_ALL: "a user sees their own alone, whoever they are",
        Shared.ENDED_CANNOT_BE_CANCELLED: "the seed answers a task that has ended unchanged",
    }

    async def submit(
        self,
        caller: Caller,
        text: str = "one",
        work: Work = "complete",
        *,
        webhook: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> httpx2.Response:
        if work == "hold":
            caller.served.remote.plan(SpeechFault("stuck_job"))
        body = {
            "voice_id": await self._voice(caller),
            "text": text,
            "language": "xx" if work == "fail" else "en",
        }
        if webhook is not None:
            body["webhook_url"] = webhook
        return await caller.post("/generate", json=body, headers=headers)

    async def _voice(self, caller: Caller) -> str:
        """The caller's own, made when it is first needed."""
        if "voice" not in caller.possessions:
            recording = {"file": ("me.wav", a_wav(1.0), "audio/wav")}
            answer = await caller.whole.post("/voices", files=recording)
            assert answer.status_code == 201, answer.text
            # Of rivals the first one's: the same text by another voice is another payload.
            caller.possessions.setdefault("voice", answer.json()["voice_id"])
        return caller.possessions["voice"]

    def jobs(self, caller: Caller) -> str:
        return "/tasks"

    def lasting(self, job: Any) -> Any:
        """Without the signed URL, which is new each time."""
        signed = {"audio_url", "audio_url_expires_at"}
        result = {name: job["result"][name] for name in job["result"] or {} if name not in signed}
        return job | {"result": result}


class Echo(Driver):
    """The product of the page "Add an API of your own": somebody else's distribution."""

    product = "echo"
    id_in_ticket = id_in_job = "id"
    words = Words("waiting", ("speaking",), "said", "failed", "cancelled")

    async def submit(
        self,
        caller: Caller,
        text: str = "one",
        work: Work = "complete",
        *,
        webhook: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> httpx2.Response:
        told = {} if webhook is None else {"X-Webhook-Url": webhook}
        body = {
            "text": "" if work == "fail" else text,
            "times": 3,
            "pause": 3_600 if work == "hold" else 0,
        }
        return await caller.post("/v1/echoes", json=body, headers={**told, **(headers or {})})

    def jobs(self, caller: Caller) -> str:
        return "/v1/echoes"


DRIVERS: list[Driver] = [Gateway(), Batches(), Graphs(), Llm(), Speech(), Echo()]
