"""Reads the tasks of a job, their results and files, and adds tasks to an open job.

The dead-letter queue has the lists whose ingest failed, and how to retry it.
"""

from __future__ import annotations

from dataclasses import replace
from http import HTTPStatus
from typing import Final
from uuid import UUID

from coatcheck.domain.artifacts import ArtifactRecord
from coatcheck.domain.errors import JobNotFound
from coatcheck.domain.ids import to_text
from coatcheck.domain.limits import PAYLOAD_BYTES_MAX
from coatcheck.domain.tenants import Scope
from coatcheck.http.artifacts import ArtifactOwner, artifact_routes, signed_seconds
from coatcheck.http.bodies import check_content_type, read_as_written
from coatcheck.http.explanations import explain_route, explanation_response
from coatcheck.http.job_resource import (
    IDEMPOTENCY_PARAMETERS,
    PLAN_INACTIVE,
    TICKET_HEADERS,
    check_mismatch,
    replay_headers,
)
from coatcheck.http.large_responses import Encode, LeftOutResult
from coatcheck.http.pages import LIMIT, PAGE_PARAMETERS, cursor_parameter, read_limit, read_page
from coatcheck.http.parameters import (
    Preferences,
    read_choice,
    read_idempotency_key,
    read_preferences,
)
from coatcheck.http.request import Request
from coatcheck.http.response import JSON, Response, StreamResponse, encoded, json_response
from coatcheck.http.retry_after import kind_of
from coatcheck.http.routing import ULID, Parameter, RequestBody, ResponseSpec, Route
from coatcheck.products.batches import presenter, schemas, task_lists
from coatcheck.products.batches.jobs import (
    ANY_CURSOR,
    INVALID_FIELD,
    JOB,
    JOB_ID,
    RUN_OR_ALL,
    BatchJobs,
    batch_route,
    chosen_run,
    refusal,
)
from coatcheck.products.batches.model import BatchNotOpen, BatchView, Created, TaskStatus, TaskView
from coatcheck.products.batches.presenter import DLQ, poll_url
from coatcheck.products.batches.schemas import MoreTasks, check_one_source
from coatcheck.products.batches.task_lists import ListTarget, compared, fingerprint, is_task_list
from coatcheck.products.batches.task_repository import FAILURES_COUNTED_MAX

_STATUSES: Final = [status.value for status in TaskStatus]
_PATH: Final = f"{JOB}/tasks"
TASK_PATH: Final = f"{_PATH}/{{task_id}}"


class TaskRoutes:
    """The routes of a job's tasks and of the dead-letter queue."""

    def __init__(self, jobs: BatchJobs) -> None:
        self._jobs = jobs

    # Reading

    async def page(self, request: Request) -> Response:
        view = await self._jobs.found(request)
        status = read_choice(request.query, "status", _STATUSES)
        run = chosen_run(view, request.query.get("run"))
        filter_status = None if status is None else TaskStatus(status)
        after, limit = request.query.get("cursor"), read_limit(request.query)
        tasks = self._jobs.batches.tasks
        if run is None:
            page = tasks.page_of_all_runs(view, status=filter_status, after=after, limit=limit)
        else:
            page = tasks.page(view, run, status=filter_status, after=after, limit=limit)
        found, following = await page
        return json_response(
            schemas.TaskPage([presenter.task(view, each) for each in found], following)
        )

    async def failures(self, request: Request) -> Response:
        """Count the failed tasks by error code."""
        view = await self._jobs.found(request)
        run = chosen_run(view, request.query.get("run"))
        tasks = self._jobs.batches.tasks
        found = await (
            tasks.failures_of_all_runs(view) if run is None else tasks.failures(view, run)
        )
        items = [schemas.BatchFailureCount(code, count) for code, count in found.by_code]
        last = run or view.current
        return json_response(schemas.TaskFailures(last.id, run is None, found.counted, items))

    async def show(self, request: Request) -> Response | StreamResponse:
        """A task with its input, its whole result, and URLs of its artifacts."""
        view, task = await self._task(request)
        artifacts = await self._artifacts(view, task)
        if not task.result_is_left_out:
            return json_response(presenter.whole_task(view, task, artifacts))

        async def body(result: bytes) -> bytes:
            return encoded(presenter.whole_task(view, replace(task, result=result), artifacts))

        return await self._large(view, task, "task", body)

    async def result(self, request: Request) -> Response | StreamResponse:
        """The task's result alone."""
        view, task = await self._task(request)
        if task.result_is_left_out:

            async def body(result: bytes) -> bytes:
                return presenter.task_result(view, replace(task, result=result)) or b"null"

            return await self._large(view, task, "result", body)
        result = presenter.task_result(view, task)
        if result is None:
            raise JobNotFound("the task has no result")
        return Response(HTTPStatus.OK, result, [JSON])

    async def _large(
        self, view: BatchView, task: TaskView, form: str, body: Encode
    ) -> StreamResponse:
        assert task.result_bytes is not None
        stored = LeftOutResult(view.org, task.uuid, task.result_bytes)
        return await self._jobs.server.large_results.response(
            stored, (form, task.finished_at), body, HTTPStatus.OK, []
        )

    async def _task(self, request: Request) -> tuple[BatchView, TaskView]:
        view = await self._jobs.found(request)
        return view, await self._jobs.batches.tasks.get(view, request.params["task_id"])

    async def _artifacts(self, view: BatchView, task: TaskView) -> list[schemas.TaskArtifact]:
        engine = self._jobs.engine
        seconds = signed_seconds(view.expires_at, self._jobs.settings.batch_url_seconds)
        shown = []
        for artifact in await engine.artifacts(to_text(task.uuid), org=view.org):
            signed = await engine.sign_artifact(artifact, seconds)
            shown.append(
                schemas.TaskArtifact(
                    name=artifact.name,
                    media_type=artifact.media_type,
                    bytes=artifact.size,
                    sha256=artifact.sha256.hex(),
                    url=signed.url,
                    expires_at=signed.expires_at,
                )
            )
        return shown

    async def explain(self, request: Request) -> Response:
        view, task = await self._task(request)
        engine = self._jobs.engine
        job = await engine.get(to_text(task.uuid), org=view.org)
        # With the id that this API uses.
        explanation = replace(await engine.explainer.explain(job), job_id=task.id)
        kind = kind_of(job.org, job.endpoint, job.queue_key)
        unknown = self._jobs.server.retry_after.retry_after(kind, job.lane, job)
        return explanation_response(request, view.org, explanation, unknown=unknown)

    # Adding

    async def add(self, request: Request) -> Response | StreamResponse:
        """Add tasks to an open job: 201 if they exist now, 202 if a worker ingests them."""
        jobs, principal = self._jobs, request.principal
        preferences = read_preferences(request, in_query=False)
        if not is_task_list(request):
            check_content_type(request, otherwise=task_lists.CONTENT_TYPE_HINT)
        view = await jobs.found(request)
        key = jobs.stored_key(principal, "tasks", read_idempotency_key(request))
        known = None
        if key is not None:
            known = await jobs.batches.find_part_key(view.org, view.uuid, key)
        if known is not None:
            created, status = await compared(request, known, preferences), HTTPStatus.OK
        else:
            created, status = await self._add(request, view, key, preferences)
            view = await jobs.batches.get(view.id, org=view.org)
        check_mismatch(created, preferences)
        return await jobs.shown(view, status, [*preferences.headers, *replay_headers(created)])

    async def _add(
        self, request: Request, view: BatchView, key: str | None, preferences: Preferences
    ) -> tuple[Created, HTTPStatus]:
        jobs = self._jobs
        await jobs.gate.check_new_work(request.principal, jobs=0)
        if not view.is_open:
            # Checked before a list is read. The locked row tells later whether it was closed since.
            raise BatchNotOpen("The job was not created as an open one (`type: open`).")
        body = MoreTasks()
        if not is_task_list(request):
            body = read_as_written(await request.body(PAYLOAD_BYTES_MAX), MoreTasks)
            check_one_source(body.tasks, body.source, is_needed=True)
        target = ListTarget(
            view.uuid,
            view.owner,
            view.payload_prefix,
            view.payload_suffix,
            view.rate_key,
            may_be_small=not preferences.respond_async,
        )
        received = await jobs.lists.receive(request, body, target)
        assert received is not None, "there is one source"
        part = received.part
        if key is not None:
            digest = await fingerprint(request, received)
            part = replace(part, idempotency_key=key, fingerprint=digest)
        adding = jobs.batches.add(
            view.org, view.uuid, part, received.tasks, request_id=request.request_id
        )
        created = await jobs.lists.kept(received, adding)
        if not created.created:
            return created, HTTPStatus.OK
        return created, HTTPStatus.ACCEPTED if received.tasks is None else HTTPStatus.CREATED

    # Files, which are kept as long as the job

    async def job(self, request: Request, _: Scope) -> ArtifactOwner:
        """The task in a path, for the routes of its files."""
        view, task = await self._task(request)
        return ArtifactOwner(
            org=view.org,
            job=task.uuid,
            url=f"{poll_url(view.id)}/tasks/{task.id}",
            terminal=task.state.terminal,
            expires_at=view.expires_at,
            url_seconds=self._jobs.settings.batch_url_seconds,
        )

    async def record(self, request: Request, name: str) -> ArtifactRecord | None:
        """The record of a task's artifact, also after its batch was removed. Then only the records
        of its tasks are left, which name an owner but no batch."""
        principal = request.principal
        try:
            job = (await self.job(request, Scope.READ)).job
        except JobNotFound:
            try:
                job = UUID(request.params["task_id"])
            except ValueError:
                return None
        record = await self._jobs.engine.artifact_repository.record(principal.org, job, name)
        if record is None or not principal.may_see(record.owner, admins_see_all=True):
            return None
        return record

    # Lists whose ingest failed

    async def dead_letters(self, request: Request) -> Response:
        """List dead letters: of all the organisation's jobs for an admin, else of the caller's."""
        principal, asked = request.principal, read_page(request)
        found = await self._jobs.batches.dead_letters.page(
            principal.org, asked, owner=principal.lists_jobs_of
        )
        items = [presenter.dead_letter(letter) for letter in found]
        following = asked.following(items, lambda item: item.id)
        return json_response(schemas.DeadLetterPage(items, following))

    async def redrive(self, request: Request) -> Response:
        """Retry the ingest of a list, from where it stopped."""
        jobs, principal = self._jobs, request.principal
        await jobs.gate.check_new_work(principal, jobs=0)
        letter = await jobs.batches.dead_letters.redrive(
            principal.org,
            request.params["id"],
            principal.lists_jobs_of,
            request_id=request.request_id,
        )
        shown = presenter.dead_letter(letter)
        location = (b"location", shown.urls.job.encode("ascii"))
        return json_response(shown, HTTPStatus.ACCEPTED, [location])


TASK_ID: Final = Parameter(
    "task_id",
    "path",
    "The task's id: 32 hexadecimal digits.",
    {"type": "string", "pattern": "^[0-9a-f]{32}$"},
)
_OF_TASK: Final = (JOB_ID, TASK_ID)
_STATUS: Final = Parameter(
    "status", "query", "Only tasks of this status.", {"type": "string", "enum": _STATUSES}
)
_PREFER: Final = Parameter("Prefer", "header", "`respond-async`, `handling=strict` (RFC 7240).")
_NOT_OPEN: Final = refusal(
    HTTPStatus.CONFLICT,
    "The job accepts no tasks (`batch_not_open`), or the upload cannot be used "
    "(`upload_missing`, `upload_already_used`).",
)


def routes(jobs: BatchJobs) -> list[Route]:
    tasks = TaskRoutes(jobs)
    return [
        batch_route(
            "GET",
            _PATH,
            "batch_tasks",
            "The tasks of a run, or of the job as a whole; all, or those of one status.",
            tasks.page,
            ResponseSpec(HTTPStatus.OK, "A page of tasks.", schemas.TaskPage),
            description="For the job as a whole (`run=all`), each task is listed once, with its "
            "latest result. With a status, a page may be short although it is not the last.",
            parameters=(JOB_ID, RUN_OR_ALL, _STATUS, cursor_parameter(ANY_CURSOR), LIMIT),
        ),
        batch_route(
            "POST",
            _PATH,
            "add_batch_tasks",
            "Add tasks to an open job.",
            tasks.add,
            ResponseSpec(
                HTTPStatus.OK,
                "The idempotency key was known: nothing was added.",
                schemas.BatchJob,
                headers=TICKET_HEADERS,
            ),
            ResponseSpec(HTTPStatus.CREATED, "The tasks exist.", schemas.BatchJob),
            ResponseSpec(HTTPStatus.ACCEPTED, "A worker ingests the tasks.", schemas.BatchJob),
            PLAN_INACTIVE,
            _NOT_OPEN,
            INVALID_FIELD,
            parameters=(JOB_ID, *IDEMPOTENCY_PARAMETERS, _PREFER),
            body=RequestBody(
                "Tasks, up to 1 MiB; or a list of tasks, up to 10 GB.",
                MoreTasks,
                also={task_lists.MEDIA_TYPE: task_lists.SCHEMA},
            ),
        ),
        batch_route(
            "GET",
            f"{JOB}/failures",
            "batch_failures",
            "The error codes of a run's failed tasks, with counts.",
            tasks.failures,
            ResponseSpec(HTTPStatus.OK, "The codes.", schemas.TaskFailures),
            description=f"If a run has more than {FAILURES_COUNTED_MAX:,} failed tasks, only the "
            f"first {FAILURES_COUNTED_MAX:,} are counted.",
            parameters=(JOB_ID, RUN_OR_ALL),
        ),
        batch_route(
            "GET",
            TASK_PATH,
            "batch_task",
            "A task with its input, result and artifacts.",
            tasks.show,
            ResponseSpec(HTTPStatus.OK, "The task.", schemas.WholeTask),
            parameters=_OF_TASK,
        ),
        batch_route(
            "GET",
            f"{TASK_PATH}/result",
            "batch_task_result",
            "The result of a succeeded task, alone.",
            tasks.result,
            ResponseSpec(HTTPStatus.OK, "The result.", schema={}),
            parameters=_OF_TASK,
        ),
        explain_route(
            TASK_PATH, "explain_batch_task", tasks.explain, tag="batches", parameters=_OF_TASK
        ),
        *artifact_routes(
            jobs.server,
            tasks,
            path=TASK_PATH,
            name="batch_task",
            tag="batches",
            parameters=_OF_TASK,
            shown_id=lambda task: task.hex,
        ),
        batch_route(
            "GET",
            DLQ,
            "dead_letters",
            "Lists whose ingest failed, newest first.",
            tasks.dead_letters,
            ResponseSpec(HTTPStatus.OK, "A page of lists.", schemas.DeadLetterPage),
            description="An admin sees those of all jobs of the organisation; others see those of "
            "their own.",
            parameters=PAGE_PARAMETERS,
        ),
        batch_route(
            "POST",
            f"{DLQ}/{{id}}/redrive",
            "redrive",
            "Retry the ingest of a list, from where it stopped.",
            tasks.redrive,
            ResponseSpec(
                HTTPStatus.ACCEPTED,
                "A worker ingests it.",
                schemas.DeadLetterItem,
                headers={"Location": "The URL of its job."},
            ),
            PLAN_INACTIVE,
            parameters=(Parameter("id", "path", "The dead letter's id.", ULID),),
        ),
    ]
