"""What each route needs, and what it answers to whom: one entry for every operation.

The credentials, the foreign and the absent names are the same for all of them, so a route's entry
says only what is its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx2

from coatcheck.domain.tenants import Scope
from coatcheck.http.routing import Access, Route
from tests.contract.batch_resources import TALK
from tests.contract.chat_resources import CHAT, CHAT_MODEL, EMBED_MODEL, PICTURE_NAME
from tests.contract.speech_resources import RECORDING
from tests.contract.tenant_resources import ARCHIVE, TenantResource, TenantResources
from tests.contract.things_service import WORDS
from tests.products.graphs.archives import form

NOT_FOUND = 404
_SAFE_METHODS = {"GET", "HEAD", "OPTIONS"}

Possessions = Callable[[TenantResources], Mapping[str, TenantResource]]


@dataclass(frozen=True, kw_only=True)
class Entry:
    """How a route is called, and its statuses.

    ``scope`` is what a caller needs; None where anyone may call. ``foreign`` has the statuses for
    another organisation's names in the path, where they are not 404; so has ``other_user`` for
    somebody else of the caller's own organisation.
    """

    scope: Scope | None = None
    own: int = 200
    other_user: int = 200
    params: Possessions = lambda resources: {}
    query: Possessions = lambda resources: {}
    foreign: Mapping[str, int] = field(default_factory=dict)
    json: Callable[[TenantResources], Any] = lambda resources: None
    files: Mapping[str, Any] | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


def _org(resources: TenantResources) -> dict[str, TenantResource]:
    return {"org": resources.org}


def _at_once(resources: TenantResources) -> dict[str, TenantResource]:
    """Of a stream that has no end: what there is."""
    return {"wait": fixed("0")}


def _service(resources: TenantResources) -> dict[str, TenantResource]:
    return _org(resources) | {"service": resources.service}


def _hosted(resources: TenantResources) -> dict[str, TenantResource]:
    return _service(resources) | {"ws": resources.workspace}


def _call(resources: TenantResources) -> dict[str, TenantResource]:
    return _service(resources) | {"path": fixed("thing"), "version": fixed("1")}


def _of_code(resources: TenantResources) -> dict[str, TenantResource]:
    """The service that the jobs of the resources are of."""
    return {"service": TenantResource("things", "theirs", "nothing")}


def _job(resources: TenantResources) -> dict[str, TenantResource]:
    return _org(resources) | _of_code(resources) | {"id": resources.ended_job}


def _waiting_job(resources: TenantResources) -> dict[str, TenantResource]:
    return _job(resources) | {"id": resources.waiting_job}


def _org_job(resources: TenantResources) -> dict[str, TenantResource]:
    return _org(resources) | {"id": resources.ended_job}


def _waiting_org_job(resources: TenantResources) -> dict[str, TenantResource]:
    return _org(resources) | {"id": resources.waiting_job}


def _key(resources: TenantResources) -> dict[str, TenantResource]:
    return _org(resources) | {"id": resources.key_id}


def _delivery(resources: TenantResources) -> dict[str, TenantResource]:
    return _org(resources) | {"id": resources.delivery}


def _usage_report(resources: TenantResources) -> dict[str, TenantResource]:
    return _org(resources) | {"id": resources.usage_report}


def _webhook_endpoint(resources: TenantResources) -> dict[str, TenantResource]:
    return _org(resources) | {"id": resources.webhook_endpoint}


def _of_webhook_endpoint(own: int = 200, json: Any = None) -> Entry:
    return Entry(
        scope=Scope.ADMIN,
        own=own,
        other_user=own,
        params=_webhook_endpoint,
        json=lambda resources: json,
    )


def fixed(value: str) -> TenantResource:
    """What is nobody's."""
    return TenantResource(value, value, value)


def _graph_job(resources: TenantResources) -> dict[str, TenantResource]:
    return {"id": resources.ended_graph_job}


def _waiting_graph_job(resources: TenantResources) -> dict[str, TenantResource]:
    return {"id": resources.waiting_graph_job}


def _chat(resources: TenantResources) -> dict[str, TenantResource]:
    return {"id": resources.ended_chat, "name": fixed(PICTURE_NAME)}


def _waiting_chat(resources: TenantResources) -> dict[str, TenantResource]:
    return {"id": resources.waiting_chat}


def _task(resources: TenantResources) -> dict[str, TenantResource]:
    return {"id": resources.ended_task}


def _waiting_task(resources: TenantResources) -> dict[str, TenantResource]:
    return {"id": resources.waiting_task}


def _generation(resources: TenantResources) -> dict[str, TenantResource]:
    return {"id": resources.generation}


def _voice(resources: TenantResources) -> dict[str, TenantResource]:
    return {"id": resources.voice}


def _batch(kind: str = "batch", **others: str) -> Possessions:
    """The batch of a kind, and by the names of the path what else there is of batches."""
    kinds = {"id": kind, **others}
    return lambda resources: {name: resources.of_batches(kind) for name, kind in kinds.items()}


def _read_batch(kind: str = "batch", **others: str) -> Entry:
    """The colleague of the matrix is an admin, and so sees it."""
    return Entry(scope=Scope.READ, params=_batch(kind, **others))


def _steer_batch(own: int, json: Any = None, kind: str = "open_batch") -> Entry:
    return Entry(
        scope=Scope.SUBMIT,
        own=own,
        other_user=own,
        params=_batch(kind),
        json=lambda resources: json,
    )


def _with_file(possessions: Possessions, name: str = WORDS) -> Possessions:
    return lambda resources: {**possessions(resources), "name": fixed(name)}


def _file(
    params: Possessions,
    own: int = 200,
    foreign: Mapping[str, int] | None = None,
    other_user: int = NOT_FOUND,
) -> Entry:
    """A route of a file that a job left."""
    return Entry(
        scope=Scope.READ, own=own, other_user=other_user, params=params, foreign=foreign or {}
    )


def _delete_file(params: Possessions, own: int = 409, other_user: int = NOT_FOUND) -> Entry:
    """Of a job that goes on none is deleted; whose it is not, is not told that."""
    return Entry(scope=Scope.SUBMIT, own=own, other_user=other_user, params=params)


def _ask_model(scope: Scope, own: int, json: Any) -> Entry:
    return Entry(scope=scope, own=own, other_user=own, json=lambda _: json)


_GRAPH = Entry(
    scope=Scope.SUBMIT,
    own=202,
    other_user=202,
    files=form(ARCHIVE),
    headers={"Idempotency-Key": "the-matrix"},
)
_SINCE = {"since": "2026-01-01T00:00:00Z"}
_REPORT = {"id": f"msg_{'0' * 26}", "lease": "0" * 32, "status_code": 200}
_SUBMIT = Entry(scope=Scope.SUBMIT, own=202, other_user=202, params=_call)

ENTRIES: Mapping[str, Entry] = {
    "healthz": Entry(),
    "readyz": Entry(),
    "metrics": Entry(),
    "openapi": Entry(),
    "docs": Entry(),
    "docs_file": Entry(params=lambda _: {"file": fixed("start.js")}),
    "me": Entry(),
    "usage": Entry(scope=Scope.READ, params=_org),
    "usage_reports": Entry(scope=Scope.READ, params=_org),
    "usage_report": Entry(scope=Scope.READ, params=_usage_report),
    "overview": Entry(scope=Scope.READ, params=_org),
    "operator_overview": Entry(scope=Scope.ADMIN, own=403, other_user=403),
    "submit": _SUBMIT,
    "submit_version": _SUBMIT,
    "call": _SUBMIT,
    "call_version": _SUBMIT,
    "job": Entry(scope=Scope.READ, params=_job, other_user=NOT_FOUND),
    "explain_job": Entry(scope=Scope.READ, params=_waiting_job, other_user=NOT_FOUND),
    "job_events": Entry(scope=Scope.READ, params=_job, other_user=NOT_FOUND),
    "cancel": Entry(scope=Scope.SUBMIT, params=_waiting_job, other_user=NOT_FOUND),
    "job_artifacts": _file(_job),
    "job_artifact": _file(_with_file(_job)),
    "delete_job_artifact": _delete_file(_with_file(_waiting_job)),
    "job_artifact_receipt": _file(_with_file(_job)),
    "jobs": Entry(scope=Scope.READ, params=_hosted),
    "batch_status": Entry(
        scope=Scope.READ,
        params=lambda resources: _hosted(resources) | _of_code(resources),
        query=lambda resources: {"job_ids": resources.ended_job},
        # A service that was taken away has jobs still.
        foreign={"service": 200},
    ),
    # The colleague of the matrix is an admin, who looks after all jobs.
    "org_jobs": Entry(scope=Scope.READ, params=_org),
    "org_jobs_events": Entry(scope=Scope.READ, params=_org, query=_at_once),
    "org_job": Entry(scope=Scope.READ, params=_org_job),
    "explain_org_job": Entry(scope=Scope.READ, params=_waiting_org_job),
    "org_job_events": Entry(scope=Scope.READ, params=_org_job),
    "org_job_timeline": Entry(scope=Scope.READ, params=_org_job),
    "org_job_log": Entry(scope=Scope.READ, params=_org_job),
    "org_job_input": Entry(scope=Scope.READ, params=_waiting_org_job),
    "org_job_artifacts": _file(_org_job, other_user=200),
    "org_job_artifact": _file(_with_file(_org_job), other_user=200),
    "org_job_artifact_receipt": _file(_with_file(_org_job), other_user=200),
    "cancel_org_job": Entry(scope=Scope.SUBMIT, params=_waiting_org_job),
    # It goes on; whose it is not, is not told that.
    "retry_org_job": Entry(scope=Scope.SUBMIT, own=409, other_user=409, params=_waiting_org_job),
    "steer_org_jobs": Entry(
        scope=Scope.SUBMIT,
        params=_org,
        json=lambda resources: {"action": "cancel", "ids": [resources.waiting_job.own]},
    ),
    # Nobody operates this deployment.
    "operator_orgs": Entry(scope=Scope.ADMIN, own=403, other_user=403),
    "operator_forget_services": Entry(
        scope=Scope.ADMIN, own=403, other_user=403, params=lambda _: {"name": fixed("docs")}
    ),
    "services": Entry(scope=Scope.READ, params=_org),
    "service": Entry(scope=Scope.READ, params=_hosted),
    "register_service": Entry(
        scope=Scope.ADMIN,
        params=_hosted,
        # Whatever others call their services, the name is free; but a service keeps its workspace.
        foreign={"service": 200, "ws": 409},
        json=lambda resources: resources.definition,
    ),
    "create_api_key": Entry(
        scope=Scope.ADMIN, own=201, other_user=201, params=_org, json=lambda _: {"name": "one more"}
    ),
    "list_api_keys": Entry(scope=Scope.ADMIN, params=_org),
    "get_api_key": Entry(scope=Scope.ADMIN, params=_key),
    "revoke_api_key": Entry(scope=Scope.ADMIN, own=204, other_user=204, params=_key),
    "webhook_secret": Entry(scope=Scope.ADMIN, params=_org),
    "rotate_webhook_secret": Entry(scope=Scope.ADMIN, params=_org),
    "webhook_deliveries": Entry(scope=Scope.ADMIN, params=_org),
    "webhook_delivery": Entry(scope=Scope.ADMIN, params=_delivery),
    "replay_webhook_delivery": Entry(scope=Scope.ADMIN, own=202, other_user=202, params=_delivery),
    "replay_webhooks": Entry(
        scope=Scope.ADMIN, own=202, other_user=202, params=_org, json=lambda _: _SINCE
    ),
    "create_webhook_endpoint": Entry(
        scope=Scope.ADMIN,
        own=201,
        other_user=201,
        params=_org,
        json=lambda resources: {"url": resources.upstream_url},
    ),
    "list_webhook_endpoints": Entry(scope=Scope.ADMIN, params=_org),
    "get_webhook_endpoint": _of_webhook_endpoint(),
    "change_webhook_endpoint": _of_webhook_endpoint(json={"description": "the matrix's"}),
    "delete_webhook_endpoint": _of_webhook_endpoint(own=204),
    "pause_webhook_endpoint": _of_webhook_endpoint(),
    "resume_webhook_endpoint": _of_webhook_endpoint(),
    "test_webhook_endpoint": _of_webhook_endpoint(own=202),
    "webhook_endpoint_secret": _of_webhook_endpoint(),
    "rotate_webhook_endpoint_secret": _of_webhook_endpoint(),
    "webhook_endpoint_deliveries": _of_webhook_endpoint(),
    "replay_webhook_endpoint": _of_webhook_endpoint(own=202, json=_SINCE),
    "take_webhook_messages": _of_webhook_endpoint(),
    "report_webhook_messages": _of_webhook_endpoint(json={"reports": [_REPORT]}),
    # Open, because Stripe has no key of ours; its signature is what counts.
    "stripe_webhook": Entry(own=400, json=lambda _: {}),
    # Open, too: who has the URL may use it.
    "fetch_blob": Entry(params=lambda resources: {"token": resources.blob_token}),
    "put_blob": Entry(own=201, params=lambda resources: {"token": resources.upload_token}),
    # Open, too; this one nobody signed.
    "remote_callback": Entry(own=404, params=lambda _: {"callback": fixed("unsigned")}),
    "dependency_graph": _GRAPH,
    "call_graph": _GRAPH,
    "domain_graph": _GRAPH,
    "parse_graph": _GRAPH,
    "supermodel_graph": _GRAPH,
    "graph_job": Entry(scope=Scope.READ, params=_graph_job, other_user=NOT_FOUND),
    "explain_graph_job": Entry(scope=Scope.READ, params=_waiting_graph_job, other_user=NOT_FOUND),
    "graph_job_events": Entry(scope=Scope.READ, params=_graph_job, other_user=NOT_FOUND),
    "cancel_graph_job": Entry(scope=Scope.SUBMIT, params=_waiting_graph_job, other_user=NOT_FOUND),
    "deletion_receipt": Entry(scope=Scope.READ, params=_graph_job, other_user=NOT_FOUND),
    "receipt_keys": Entry(),
    # It was cancelled, and has made nothing.
    "graph_job_artifacts": _file(_graph_job),
    "graph_job_artifact": _file(_with_file(_graph_job), own=NOT_FOUND),
    "delete_graph_job_artifact": _delete_file(_with_file(_waiting_graph_job)),
    "graph_job_artifact_receipt": _file(_with_file(_graph_job), own=NOT_FOUND),
    "submit_batch": Entry(scope=Scope.SUBMIT, own=202, other_user=202, json=lambda _: TALK),
    "batches": Entry(scope=Scope.READ),
    "batch": _read_batch(),
    # One that has ended: another's events go on.
    "batch_events": _read_batch("stuck_batch"),
    "batch_bad_lines": _read_batch(),
    "batch_tasks": _read_batch(),
    "batch_task": _read_batch(task_id="task"),
    "explain_batch": _read_batch("stuck_batch"),
    "explain_batch_task": _read_batch(task_id="task"),
    "batch_task_result": _read_batch(task_id="task"),
    "batch_failures": _read_batch(),
    "batch_task_artifacts": _file(_batch(task_id="task"), other_user=200),
    "batch_task_artifact": _file(_with_file(_batch(task_id="task")), other_user=200),
    # Deleting it again is no error.
    "delete_batch_task_artifact": _delete_file(
        _with_file(_batch(task_id="task")), own=200, other_user=200
    ),
    # A receipt of one's own is there when the batch is not.
    "batch_task_artifact_receipt": _file(
        _with_file(_batch(task_id="task")), foreign={"id": 200}, other_user=200
    ),
    "add_batch_tasks": _steer_batch(202, {"tasks": [{}]}),
    "close_batch": _steer_batch(200),
    "cancel_batch": _steer_batch(202),
    # It goes on.
    "rerun_batch": _steer_batch(409),
    "delete_batch": _steer_batch(204),
    "create_upload": Entry(scope=Scope.SUBMIT, own=201, other_user=201),
    "create_export": _steer_batch(202, kind="batch"),
    "exports": _read_batch(),
    "export": _read_batch(export_id="export"),
    "dead_letters": Entry(scope=Scope.READ),
    # An admin's, whosever the batch is.
    "redrive": Entry(scope=Scope.SUBMIT, own=202, other_user=202, params=_batch("dead_letter")),
    "submit_chat": _ask_model(Scope.SUBMIT, 202, CHAT),
    "ollama_chat": _ask_model(Scope.SUBMIT, 202, CHAT),
    "ollama_generate": _ask_model(Scope.SUBMIT, 202, {"model": CHAT_MODEL, "prompt": "hello"}),
    "ollama_tags": Entry(scope=Scope.READ),
    "ollama_ps": Entry(scope=Scope.READ),
    "ollama_version": Entry(scope=Scope.READ),
    "ollama_show": _ask_model(Scope.READ, 200, {"model": CHAT_MODEL}),
    "ollama_embed": _ask_model(Scope.SUBMIT, 200, {"model": EMBED_MODEL, "input": "a"}),
    "ollama_embeddings": _ask_model(Scope.SUBMIT, 200, {"model": EMBED_MODEL, "prompt": "a"}),
    "openai_chat": _ask_model(Scope.SUBMIT, 202, CHAT),
    "openai_completion": _ask_model(Scope.SUBMIT, 202, {"model": CHAT_MODEL, "prompt": "hello"}),
    "openai_response": _ask_model(Scope.SUBMIT, 202, {"model": CHAT_MODEL, "input": "hello"}),
    "openai_embeddings": _ask_model(Scope.SUBMIT, 202, {"model": EMBED_MODEL, "input": "a"}),
    "openai_models": Entry(scope=Scope.READ),
    "openai_model": Entry(scope=Scope.READ, params=lambda _: {"model": fixed(CHAT_MODEL)}),
    "chats": Entry(scope=Scope.READ),
    "chat": Entry(scope=Scope.READ, params=_chat, other_user=NOT_FOUND),
    "explain_chat": Entry(scope=Scope.READ, params=_waiting_chat, other_user=NOT_FOUND),
    "chat_events": Entry(scope=Scope.READ, params=_chat, other_user=NOT_FOUND),
    "chat_artifacts": _file(_chat),
    "chat_artifact": _file(_chat),
    "delete_chat_artifact": _delete_file(_with_file(_waiting_chat, PICTURE_NAME)),
    "chat_artifact_receipt": _file(_chat),
    "cancel_chat": Entry(scope=Scope.SUBMIT, params=_waiting_chat, other_user=NOT_FOUND),
    "create_voice": Entry(scope=Scope.SUBMIT, own=201, other_user=201, files=RECORDING),
    "voices": Entry(scope=Scope.READ),
    "voice": Entry(scope=Scope.READ, params=_voice, other_user=NOT_FOUND),
    "generate_speech": Entry(
        scope=Scope.SUBMIT,
        own=202,
        # It is the voice of somebody else.
        other_user=NOT_FOUND,
        json=lambda resources: {
            "voice_id": resources.voice.own,
            "text": "Hello.",
            "language": "en",
        },
    ),
    "preview_voice_design": Entry(
        scope=Scope.SUBMIT,
        own=202,
        other_user=202,
        json=lambda _: {"description": "Deep.", "text": "Hello.", "language": "en"},
    ),
    # No remote could fetch the voice: the server has no address.
    "clone_voice": Entry(
        scope=Scope.SUBMIT,
        own=NOT_FOUND,
        other_user=NOT_FOUND,
        params=_voice,
        json=lambda _: {"language": "en"},
    ),
    "speech_tasks": Entry(scope=Scope.READ),
    "speech_tasks_events": Entry(scope=Scope.READ, query=_at_once),
    "speech_task": Entry(scope=Scope.READ, params=_task, other_user=NOT_FOUND),
    "explain_speech_task": Entry(scope=Scope.READ, params=_waiting_task, other_user=NOT_FOUND),
    "speech_task_events": Entry(scope=Scope.READ, params=_task, other_user=NOT_FOUND),
    "cancel_speech_task": Entry(scope=Scope.SUBMIT, params=_waiting_task, other_user=NOT_FOUND),
    "generations": Entry(scope=Scope.READ),
    "generation": Entry(scope=Scope.READ, params=_generation, other_user=NOT_FOUND),
    # It was cancelled, and nothing was spoken.
    "speech_task_artifacts": _file(_task),
    "speech_task_artifact": _file(_with_file(_task), own=NOT_FOUND),
    "delete_speech_task_artifact": _delete_file(_with_file(_waiting_task)),
    "speech_task_artifact_receipt": _file(_with_file(_task), own=NOT_FOUND),
    "delete_voice": Entry(scope=Scope.SUBMIT, own=204, other_user=NOT_FOUND, params=_voice),
    "remove_service": Entry(scope=Scope.ADMIN, own=204, other_user=204, params=_hosted),
}


@dataclass(frozen=True)
class Target:
    """One route with one method, and the names to put into its path and query."""

    route: Route
    method: str
    entry: Entry
    resources: TenantResources

    def __str__(self) -> str:
        return f"{self.method} {self.route.path}"

    @property
    def names(self) -> list[str]:
        """The parts of the path that name something which may be somebody else's."""
        possessions = self.entry.params(self.resources)
        return [
            name
            for name in self.route.parameter_names
            if possessions[name].own != possessions[name].foreign
        ]

    @property
    def is_open(self) -> bool:
        return self.route.access is Access.OPEN

    def path(self, **values: str) -> str:
        """The path, with the caller's own names but for these values."""
        names = self._chosen(self.entry.params, {}) | values
        return self.route.path.replace(":path}", "}").format(**names)

    def request(self, headers: Mapping[str, Any], **others: str) -> httpx2.Request:
        """A call with the caller's own names, but for those in ``others``: foreign or absent."""
        request = self.resources.deployment.http.build_request(
            self.method,
            self.path(**self._chosen(self.entry.params, others)),
            params=self._chosen(self.entry.query, others),
            json=self.entry.json(self.resources),
            files=self.entry.files,
            headers=self.entry.headers,
        )
        del request.headers["Authorization"]
        # One id for all: then answers that say the same are the same.
        request.headers["X-Request-Id"] = "the-matrix"
        request.headers["Prefer"] = "respond-async"
        request.headers.update(headers)
        return request

    async def ask(self, headers: Mapping[str, Any], **others: str) -> httpx2.Response:
        """Make that call."""
        answer = await self.resources.deployment.http.send(self.request(headers, **others))
        if answer.is_success and self.method not in _SAFE_METHODS:
            self.resources.changed = True
        return answer

    def _chosen(self, of: Possessions, others: Mapping[str, str]) -> dict[str, str]:
        return {
            name: str(getattr(possession, others.get(name, "own")))
            for name, possession in of(self.resources).items()
        }


def targets(resources: TenantResources) -> list[Target]:
    """Every route that is served. Raises KeyError for one that has no entry."""
    return [
        Target(route, method, ENTRIES[route.name], resources)
        for route, method in resources.routes()
    ]
