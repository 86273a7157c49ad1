"""Tasks: a page of them, one of them, its result alone; and more of them for an open job."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from http import HTTPStatus
from typing import Final

from coatcheck.domain.errors import CoatcheckError, JobNotFound, OutcomeUnknown
from coatcheck.domain.identity import Scope
from coatcheck.domain.ids import to_text
from coatcheck.domain.limits import PAYLOAD_BYTES_MAX
from coatcheck.http.artifacts import signed_seconds
from coatcheck.http.idempotency import read_idempotency_key
from coatcheck.http.job_responses import IDEMPOTENCY_PARAMETERS, TICKET_HEADERS
from coatcheck.http.json_bodies import check_content_type
from coatcheck.http.large_responses import Encode, Stored
from coatcheck.http.prefer_header import Preferences, read_preferences
from coatcheck.http.problems import MEDIA_TYPE, Problem
from coatcheck.http.queries import read_choice
from coatcheck.http.request import Call
from coatcheck.http.response import JSON, Reply, StreamReply, encoded, json_reply
from coatcheck.http.routing import Answer, Operation, Parameter, RequestBody
from coatcheck.http.struct_bodies import read_as_written
from coatcheck.products.batches import fingerprints
from coatcheck.products.batches import presenter as showing
from coatcheck.products.batches import schemas as words
from coatcheck.products.batches import task_lists as lists
from coatcheck.products.batches.context import Scene, chosen_run, stored_key
from coatcheck.products.batches.errors import BatchNotOpen
from coatcheck.products.batches.fingerprints import comes_as_list, is_same, replayed
from coatcheck.products.batches.model import BatchView, Created, TaskStatus, TaskView
from coatcheck.products.batches.read_routes import (
    CURSOR,
    JOB,
    JOB_ID,
    LIMIT,
    RUN_OR_ALL,
    read_limit,
)
from coatcheck.products.batches.request import MoreTasks, check_one_source
from coatcheck.products.batches.responses import Answers
from coatcheck.products.batches.task_lists import Frame, Lists, Taken
from coatcheck.products.batches.task_repository import FAILURES_COUNTED_MAX

_STATUSES: Final = [status.value for status in TaskStatus]
_PATH: Final = f"{JOB}/tasks"
ONE: Final = f"{_PATH}/{{task_id}}"


class Tasks:
    """The routes of a job's tasks."""

    def __init__(self, scene: Scene, answers: Answers, taking: Lists) -> None:
        self._scene = scene
        self._answers = answers
        self._lists = taking

    # Reading

    async def page(self, call: Call) -> Reply:
        view = await self._scene.job(call)
        status = read_choice(call.query, "status", _STATUSES)
        run = chosen_run(view, call.query.get("run"))
        wanted = None if status is None else TaskStatus(status)
        after, limit = call.query.get("cursor"), read_limit(call)
        tasks = self._scene.batches.tasks
        if run is None:
            page = tasks.page_of_all_runs(view, status=wanted, after=after, limit=limit)
        else:
            page = tasks.page(view, run, status=wanted, after=after, limit=limit)
        found, following = await page
        return json_reply(words.TaskPage([showing.task(view, each) for each in found], following))

    async def failures(self, call: Call) -> Reply:
        """How many tasks failed with which code."""
        view = await self._scene.job(call)
        run = chosen_run(view, call.query.get("run"))
        tasks = self._scene.batches.tasks
        found = await (
            tasks.failures_of_all_runs(view) if run is None else tasks.failures(view, run)
        )
        items = [words.FailureCount(code, count) for code, count in found.by_code]
        last = run or view.current
        return json_reply(words.TaskFailures(last.id, run is None, found.counted, items))

    async def show(self, call: Call) -> Reply | StreamReply:
        """A task with its input, its whole result, and URLs of what it has left."""
        view, task = await self._task(call)
        artifacts = await self._artifacts(view, task)
        if not task.result_is_left_out:
            return json_reply(showing.whole_task(view, task, artifacts))

        async def body(result: bytes) -> bytes:
            return encoded(showing.whole_task(view, replace(task, result=result), artifacts))

        return await self._large(view, task, "task", body)

    async def result(self, call: Call) -> Reply | StreamReply:
        """What the task came to, and nothing else."""
        view, task = await self._task(call)
        if task.result_is_left_out:

            async def body(result: bytes) -> bytes:
                return showing.task_result(view, replace(task, result=result)) or b"null"

            return await self._large(view, task, "result", body)
        result = showing.task_result(view, task)
        if result is None:
            raise JobNotFound("the task has no result")
        return Reply(HTTPStatus.OK, result, [JSON])

    async def _large(self, view: BatchView, task: TaskView, form: str, body: Encode) -> StreamReply:
        assert task.result_bytes is not None
        stored = Stored(view.org, task.uuid, task.result_bytes)
        return await self._scene.large.reply(
            stored, (form, task.finished_at), body, HTTPStatus.OK, []
        )

    async def _task(self, call: Call) -> tuple[BatchView, TaskView]:
        view = await self._scene.job(call)
        return view, await self._scene.batches.tasks.get(view, call.params["task_id"])

    async def _artifacts(self, view: BatchView, task: TaskView) -> list[words.TaskArtifact]:
        engine = self._scene.engine
        seconds = signed_seconds(view.expires_at, self._scene.settings.batch_url_seconds)
        shown = []
        for artifact in await engine.artifacts(to_text(task.uuid), org=view.org):
            signed = await engine.sign_artifact(artifact, seconds)
            shown.append(
                words.TaskArtifact(
                    name=artifact.name,
                    media_type=artifact.media_type,
                    bytes=artifact.size,
                    sha256=artifact.sha256.hex(),
                    url=signed.url,
                    expires_at=signed.expires_at,
                )
            )
        return shown

    # Adding

    async def add(self, call: Call) -> Reply:
        """More tasks for an open job: 201 if they are there, 202 if a worker takes them in."""
        scene, principal = self._scene, call.principal
        preferences = read_preferences(call, in_query=False)
        said = read_idempotency_key(call)
        is_list = comes_as_list(call)
        if not is_list:
            check_content_type(call, otherwise=lists.OTHERWISE)
        view = await scene.job(call)
        key = None if said is None else stored_key(principal, "tasks", said)
        if key is not None:
            known = await scene.batches.find_part_key(view.org, view.uuid, key)
            if known is not None:
                same = await is_same(call, known, preferences, is_list=is_list)
                headers = [*preferences.headers, *replayed(same=same, preferences=preferences)]
                return self._answers.shown(view, HTTPStatus.OK, headers)
        await scene.gate.check_new_work(principal, jobs=0)
        if not view.is_open:
            # Before a list is read; whether it was closed meanwhile, its row says.
            raise BatchNotOpen("The job was not created as an open one (`type: open`).")
        taken = await self._take(call, view, preferences, is_list=is_list)
        taken = await fingerprints.marked(call, taken, key)
        created = await self._hand_in(call, view, taken)
        after = await scene.batches.get(view.id, org=view.org)
        if created.created:
            status = HTTPStatus.ACCEPTED if taken.tasks is None else HTTPStatus.CREATED
            return self._answers.shown(after, status, preferences.headers)
        headers = [
            *preferences.headers,
            *replayed(same=not created.mismatch, preferences=preferences),
        ]
        return self._answers.shown(after, HTTPStatus.OK, headers)

    async def _take(
        self, call: Call, view: BatchView, preferences: Preferences, *, is_list: bool
    ) -> Taken:
        frame = Frame(view.payload_prefix, view.payload_suffix, view.rate_key)
        may_be_small = not preferences.respond_async
        make_room = partial(self._scene.gate.check_room, call.principal)
        if is_list:
            return await self._lists.body(
                call, view.org, view.uuid, frame, make_room, may_be_small=may_be_small
            )
        order = read_as_written(await call.body(PAYLOAD_BYTES_MAX), MoreTasks)
        check_one_source(order.tasks, order.source, is_needed=True)
        if order.source is not None:
            return await self._lists.staged(order.source.upload_id, view.org, view.owner)
        assert order.tasks is not None
        return await self._lists.inline(
            order.tasks, view.uuid, frame, make_room, may_be_small=may_be_small
        )

    async def _hand_in(self, call: Call, view: BatchView, taken: Taken) -> Created:
        """Add the part. Whatever goes wrong, no list stays without one."""
        try:
            created = await self._scene.batches.add(
                view.org,
                view.uuid,
                taken.part,
                taken.tasks,
                endpoint=view.endpoint,
                lane=view.lane,
                request_id=call.request_id,
            )
        except OutcomeUnknown:
            raise  # it may be there; if it is not, the sweeper finds a list without a job
        except CoatcheckError:
            await self._lists.drop(taken)
            raise
        if not created.created:
            await self._lists.drop(taken)
        return created


def operations(scene: Scene, answers: Answers, taking: Lists) -> list[Operation]:
    tasks = Tasks(scene, answers, taking)
    return [
        Operation(
            methods=("GET",),
            path=_PATH,
            name="batch_tasks",
            summary="Tasks of a run, or of the job as a whole, in order, or those of a status.",
            description="Of the job as a whole (`run=all`), each task is shown once, with its "
            "latest result, and a page of a status may be short and not be the last.",
            handler=tasks.page,
            access=Scope.READ,
            tag="batches",
            parameters=(JOB_ID, RUN_OR_ALL, _STATUS, CURSOR, LIMIT),
            answers=(Answer(HTTPStatus.OK, "A page of tasks.", words.TaskPage),),
        ),
        Operation(
            methods=("POST",),
            path=_PATH,
            name="add_batch_tasks",
            summary="Give an open job more tasks.",
            handler=tasks.add,
            access=Scope.SUBMIT,
            tag="batches",
            parameters=(JOB_ID, *IDEMPOTENCY_PARAMETERS, PREFER),
            body=RequestBody(
                "Tasks, to 1 MiB; or a list of tasks, to 10 GB.",
                MoreTasks,
                also={lists.MEDIA_TYPE: lists.SCHEMA},
            ),
            answers=(
                Answer(
                    HTTPStatus.OK,
                    "The idempotency key was known: nothing was added.",
                    words.BatchJob,
                    headers=TICKET_HEADERS,
                ),
                Answer(HTTPStatus.CREATED, "The tasks are there.", words.BatchJob),
                Answer(HTTPStatus.ACCEPTED, "A worker takes the tasks in.", words.BatchJob),
                PAYMENT,
                Answer(
                    HTTPStatus.CONFLICT,
                    "The job takes no more tasks (`batch_not_open`), or the upload cannot be used "
                    "(`upload_missing`, `upload_already_used`).",
                    Problem,
                    MEDIA_TYPE,
                ),
                Answer(
                    HTTPStatus.UNPROCESSABLE_ENTITY, "A field does not fit.", Problem, MEDIA_TYPE
                ),
            ),
        ),
        Operation(
            methods=("GET",),
            path=f"{JOB}/failures",
            name="batch_failures",
            summary="The codes that tasks of a run failed with, and how many of each.",
            description=f"Of a run with more than {FAILURES_COUNTED_MAX:,} failed tasks, the first "
            "so many are counted.",
            handler=tasks.failures,
            access=Scope.READ,
            tag="batches",
            parameters=(JOB_ID, RUN_OR_ALL),
            answers=(Answer(HTTPStatus.OK, "The codes.", words.TaskFailures),),
        ),
        Operation(
            methods=("GET",),
            path=ONE,
            name="batch_task",
            summary="A task with its input, its result and what it has left.",
            handler=tasks.show,
            access=Scope.READ,
            tag="batches",
            parameters=(JOB_ID, TASK_ID),
            answers=(Answer(HTTPStatus.OK, "The task.", words.WholeTask),),
        ),
        Operation(
            methods=("GET",),
            path=f"{ONE}/result",
            name="batch_task_result",
            summary="The result of a task that has succeeded, and nothing else.",
            handler=tasks.result,
            access=Scope.READ,
            tag="batches",
            parameters=(JOB_ID, TASK_ID),
            answers=(Answer(HTTPStatus.OK, "The result.", schema={}),),
        ),
    ]


PREFER: Final = Parameter("Prefer", "header", "`respond-async`, `handling=strict` (RFC 7240).")
PAYMENT: Final = Answer(
    HTTPStatus.PAYMENT_REQUIRED, "The organisation's plan is not active.", Problem, MEDIA_TYPE
)
TASK_ID: Final = Parameter(
    "task_id",
    "path",
    "The task's id: 32 hexadecimal digits.",
    {"type": "string", "pattern": "^[0-9a-f]{32}$"},
)
_STATUS: Final = Parameter(
    "status", "query", "Only tasks of this status.", {"type": "string", "enum": _STATUSES}
)
