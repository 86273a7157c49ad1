"""Submissions: the options of a new job, their checks, and the ticket that a submit returns."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, Final, Literal, overload
from uuid import UUID

import msgspec

from coatcheck.domain.catalogue import EndpointSpec
from coatcheck.domain.errors import InvalidSubmission, UrlForbidden
from coatcheck.domain.ids import new_id, to_text
from coatcheck.domain.job import JobKind, NewJob, PlainJob
from coatcheck.domain.lanes import Lane, LanePolicy
from coatcheck.domain.limits import IDEMPOTENCY_KEY_CHARACTERS_MAX, PAYLOAD_BYTES_MAX
from coatcheck.domain.states import State
from coatcheck.domain.webhooks import WebhookScope, target_id
from coatcheck.egress.urls import read_target
from coatcheck.encoding import encode
from coatcheck.service import Endpoint
from coatcheck.telemetry import tracing

_NAME_CHARACTERS_MAX = 255
_OWNER_CHARACTERS_MAX: Final = _NAME_CHARACTERS_MAX + len("claims:")
"""The longest prefix of an owner and the longest name."""
_RETRIES_MAX = 1_000
_KINDS_MAX = 10_000
"""How many kinds of jobs are cached as checked."""
_SECONDS_MIN = 1e-6
_SECONDS_MAX = 2**31 - 1
_STATE_WEBHOOKS: Final = MappingProxyType(
    {"states": WebhookScope.EVERY_STATE, "phases": WebhookScope.PHASES}
)


class Submission(msgspec.Struct, gc=False):  # made by the ten thousand
    """One job to be created. Only ``endpoint`` is needed.

    ``payload`` is any JSON value, or bytes that already are JSON. ``queue_key`` names the
    job's queue: the jobs of an organisation and endpoint with the same key share one. ``flow`` is
    the key's old name, and is removed with 0.1.0. ``run_at`` or ``delay`` (in
    seconds) postpones it; it fails if it has not started by ``start_deadline``. ``timeout``,
    ``retries``, the retention times and ``keep_input`` (whether an unsuccessful job keeps its
    input) override its endpoint's. ``owner`` is who may read it over HTTP: a user, ``*`` for
    anyone, or if empty its organisation's admins. ``fingerprint_of`` tells one use of an
    idempotency key from another; it defaults to the payload. ``payload_bytes_max`` is for products
    whose payloads are larger than most. ``webhook_url`` is sent the job's end,
    ``state_webhook_url`` every state change, or, if ``state_webhook_detail`` is ``phases``, those
    that the caller is shown (docs/reference/webhooks.md).
    """

    endpoint: str
    payload: Any = msgspec.field(default_factory=dict)
    org: str = "default"
    lane: Lane | str | None = None
    queue_key: str = ""
    idempotency_key: str | None = None
    run_at: datetime | None = None
    delay: float | None = None
    start_deadline: datetime | None = None
    timeout: float | None = None
    retries: int | None = None
    keep_completed: float | None = None
    keep_failed: float | None = None
    keep_input: bool | None = None
    request_id: str | None = None
    owner: str = ""
    fingerprint_of: bytes | None = None
    webhook_url: str | None = None
    state_webhook_url: str | None = None
    state_webhook_detail: Literal["states", "phases"] = "states"
    payload_bytes_max: int = PAYLOAD_BYTES_MAX
    # Preparer resolves it, once for each kind of job: a __post_init__ slows each construction.
    flow: str = ""


@dataclass(slots=True)
class Ticket:
    """The result of a submission: the job's id, and whether the job is new.

    ``mismatch``: the idempotency key was used before with another payload. The ticket is then that
    of the first job.
    """

    uuid: UUID
    state: State
    created: bool
    mismatch: bool = False

    @property
    def id(self) -> str:
        return to_text(self.uuid)


class NewTickets(Sequence[Ticket]):
    """The tickets of new jobs, each made on access."""

    def __init__(self, ids: Sequence[bytes]) -> None:
        self._ids = ids

    def __len__(self) -> int:
        return len(self._ids)

    @overload
    def __getitem__(self, at: int) -> Ticket: ...
    @overload
    def __getitem__(self, at: slice) -> NewTickets: ...
    def __getitem__(self, at: int | slice) -> Ticket | NewTickets:
        if isinstance(at, slice):
            return NewTickets(self._ids[at])
        return Ticket(UUID(bytes=self._ids[at]), State.QUEUED, created=True)


_Spelling = tuple[str, Lane | str | None, str, str, str, int | None, str]
"""The fields that define a kind, as submitted: org, lane, endpoint, queue key, the key by its old
name, retries, owner."""


@dataclass(slots=True, frozen=True)
class _Defaults:
    """An endpoint's defaults for its jobs, as columns store them."""

    lane: str
    retries: int | None
    keep_completed: float | None = None
    keep_failed: float | None = None
    keep_input: bool = True


class Preparer:
    """Turns submissions into rows, with defaults from the endpoint and its lane."""

    def __init__(self, endpoints: Mapping[str, Endpoint], lanes: Mapping[Lane, LanePolicy]) -> None:
        # Plain text throughout: looking up an enum member costs more than the rest of a row.
        self._retries = {str(lane): policy.retries for lane, policy in lanes.items()}
        self._defaults = {
            name: _Defaults(
                str(endpoint.spec.lane),
                endpoint.spec.retries,
                endpoint.spec.keep_completed_seconds,
                endpoint.spec.keep_failed_seconds,
                endpoint.spec.keep_input,
            )
            for name, endpoint in endpoints.items()
        }
        self._given = frozenset(self._defaults)
        self._unknown_endpoint = _Defaults(str(Lane.STANDARD), None)
        self._kinds: dict[_Spelling, JobKind] = {}

    def learn(self, endpoints: Iterable[EndpointSpec]) -> None:
        """Replace the endpoints that workers declare. Those given to the engine take precedence."""
        declared = {
            spec.engine_endpoint: _Defaults(
                str(spec.lane),
                spec.retries,
                spec.keep_completed_seconds,
                spec.keep_failed_seconds,
                spec.keep_input,
            )
            for spec in endpoints
        }
        given = {name: self._defaults[name] for name in self._given}
        self._defaults = declared | given
        self._kinds.clear()

    def is_plain(self, submission: Submission) -> bool:
        """Whether the job has no key and no option, not even one of its endpoint: the INSERT can
        then meet no conflict.

        Must agree with ``prepare``, whose row says the same (``NewJob.is_plain``) outside a trace.
        """
        if (
            submission.idempotency_key is not None
            or submission.run_at is not None
            or submission.delay is not None
            or submission.start_deadline is not None
            or submission.timeout is not None
            or submission.keep_completed is not None
            or submission.keep_failed is not None
            or submission.keep_input is not None
            or submission.webhook_url is not None
            or submission.state_webhook_url is not None
        ):
            return False
        defaults = self._defaults.get(submission.endpoint, self._unknown_endpoint)
        return (
            defaults.keep_completed is None and defaults.keep_failed is None and defaults.keep_input
        )

    def plain(self, submissions: Iterable[Submission]) -> Iterator[PlainJob]:
        """The rows of plain submissions, one by one. Raises as ``prepare`` does."""
        kinds = self._kinds
        for given in submissions:
            # Written out, not called: this loop is what a bulk submit costs (docs/adr/0010).
            spelling = (
                given.org,
                given.lane,
                given.endpoint,
                given.queue_key,
                given.flow,
                given.retries,
                given.owner,
            )
            try:
                kind = kinds[spelling]
            except (KeyError, TypeError):
                kind = self._kind(given)
            payload = given.payload
            if type(payload) is not bytes:
                payload = _to_json(payload)
            if len(payload) > given.payload_bytes_max:
                raise InvalidSubmission(f"payload: must be at most {given.payload_bytes_max} bytes")
            if given.request_id is not None:
                _check_text("request_id", given.request_id)
            yield kind, payload, given.request_id

    def prepare(self, submission: Submission, job_id: UUID | None = None) -> NewJob:
        """The row of a submission. Raises InvalidSubmission with the field and the reason."""
        ((kind, payload, request_id),) = self.plain((submission,))
        key = submission.idempotency_key
        fingerprint = None
        if key is not None:
            _check_text("idempotency_key", key, IDEMPOTENCY_KEY_CHARACTERS_MAX)
            identity = payload if submission.fingerprint_of is None else submission.fingerprint_of
            fingerprint = _fingerprint(kind.endpoint, identity)
        return NewJob(
            kind.org,
            job_id or new_id(),
            kind.lane,
            kind.endpoint,
            kind.queue_key,
            kind.failures_max,
            payload,
            key,
            fingerprint,
            request_id,
            self._options(submission),
            kind.owner,
            has_webhooks=submission.webhook_url is not None
            or submission.state_webhook_url is not None,
        )

    def prepare_to_start_within(
        self, submission: Submission, job_id: UUID, seconds: float
    ) -> NewJob:
        """As ``prepare``, for a job that fails unless it starts within ``seconds`` of its creation,
        by the database's clock, or by its ``start_deadline`` if it has one."""
        job = self.prepare(submission, job_id)
        options = {} if job.options is None else msgspec.json.decode(job.options)
        job.options = encode({"start_within_seconds": seconds, **options}).decode()
        return job

    def _kind(self, submission: Submission) -> JobKind:
        """Check the fields that define a kind, and cache the result."""
        for field_name, value in (("endpoint", submission.endpoint), ("org", submission.org)):
            _check_text(field_name, value)
        queue_key = _queue_key(submission)
        if submission.owner != "":
            _check_text("owner", submission.owner, _OWNER_CHARACTERS_MAX)
        defaults = self._defaults.get(submission.endpoint, self._unknown_endpoint)
        lane = defaults.lane if submission.lane is None else str(submission.lane)
        retries_of_lane = self._retries.get(lane)
        if retries_of_lane is None:
            raise InvalidSubmission(f"lane: {lane!r} is not a lane; the lanes are {_lanes()}")
        retries = submission.retries
        if retries is None:
            retries = retries_of_lane if defaults.retries is None else defaults.retries
        elif type(retries) is not int or not 0 <= retries <= _RETRIES_MAX:
            raise InvalidSubmission(f"retries: must be a whole number from 0 to {_RETRIES_MAX}")
        kind = JobKind(
            submission.org,
            lane,
            submission.endpoint,
            queue_key,
            retries,
            submission.owner,
        )
        if len(self._kinds) >= _KINDS_MAX:
            self._kinds.clear()
        self._kinds[
            submission.org,
            submission.lane,
            submission.endpoint,
            submission.queue_key,
            submission.flow,
            submission.retries,
            submission.owner,
        ] = kind
        return kind

    def _options(self, submission: Submission) -> str | None:
        traceparent = tracing.current()
        if traceparent is None and self.is_plain(submission):
            return None
        defaults = self._defaults.get(submission.endpoint, self._unknown_endpoint)
        options = _options(submission, defaults)
        if traceparent is not None:
            options["traceparent"] = traceparent
        return encode(options).decode() if options else None


def _queue_key(submission: Submission) -> str:
    """The queue key, by either of its names. Raises InvalidSubmission if they disagree."""
    key, old_name = submission.queue_key, submission.flow
    if key != "":
        _check_text("queue_key", key)
    if old_name != "":
        _check_text("flow", old_name)
        if key not in ("", old_name):
            raise InvalidSubmission(
                "queue_key: differs from flow, which is its old name; give queue_key alone"
            )
    return key or old_name


def _options(submission: Submission, defaults: _Defaults) -> dict[str, object]:
    options: dict[str, object] = {}
    keep_completed = submission.keep_completed
    if keep_completed is None:
        keep_completed = defaults.keep_completed
    keep_failed = submission.keep_failed
    if keep_failed is None:
        keep_failed = defaults.keep_failed
    if keep_completed is not None:
        options["keep_completed_seconds"] = _retention("keep_completed", keep_completed)
    if keep_failed is not None:
        options["keep_failed_seconds"] = _retention("keep_failed", keep_failed)
    keeps_input = submission.keep_input
    if not (defaults.keep_input if keeps_input is None else keeps_input):
        options["keeps_input"] = False
    if submission.run_at is not None:
        options["run_at"] = _moment("run_at", submission.run_at)
    if submission.delay is not None:
        options["delay_seconds"] = _seconds("delay", submission.delay)
    if submission.start_deadline is not None:
        options["start_deadline"] = _moment("start_deadline", submission.start_deadline)
    if submission.timeout is not None:
        options["timeout_seconds"] = _seconds("timeout", submission.timeout, above_zero=True)
    if submission.webhook_url is not None or submission.state_webhook_url is not None:
        options |= _webhooks(submission)
    return options


def _webhooks(submission: Submission) -> dict[str, object]:
    """The job's webhook targets and their scopes. A URL that is given twice gets every change."""
    webhooks: dict[str, WebhookScope] = {}
    if submission.webhook_url is not None:
        webhooks[_callable("webhook_url", submission.webhook_url)] = WebhookScope.THE_END
    if submission.state_webhook_url is not None:
        of_what = _STATE_WEBHOOKS.get(submission.state_webhook_detail)
        if of_what is None:
            raise InvalidSubmission("state_webhook_detail: must be 'states' or 'phases'")
        webhooks[_callable("state_webhook_url", submission.state_webhook_url)] = of_what
    return {
        "webhook": max(webhooks.values()),
        "webhooks": [
            {"target": target_id(submission.org, url), "url": url, "tells": of_what}
            for url, of_what in webhooks.items()
        ],
    }


def _callable(field: str, url: str) -> str:
    """The URL, if it is well-formed. Whether it may be called is checked at the call."""
    if not isinstance(url, str):
        raise InvalidSubmission(f"{field}: must be text")
    try:
        read_target(url)
    except UrlForbidden as error:
        raise UrlForbidden(f"{field}: {error}") from None
    return url


def _to_json(payload: Any) -> bytes:
    try:
        return encode(payload)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidSubmission(f"payload: cannot be written as JSON: {error}") from error


def _check_text(field: str, value: str, characters_max: int = _NAME_CHARACTERS_MAX) -> None:
    """Refuse text that PostgreSQL would refuse: there it would fail every row of the statement."""
    if not isinstance(value, str):
        raise InvalidSubmission(f"{field}: must be text")
    if not 1 <= len(value) <= characters_max or "\0" in value:
        raise InvalidSubmission(f"{field}: must have 1 to {characters_max} characters, no NUL")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise InvalidSubmission(f"{field}: has half of a surrogate pair") from error


def _moment(field: str, value: datetime) -> str:
    if value.tzinfo is None:
        raise InvalidSubmission(f"{field}: needs a time zone")
    try:
        # PostgreSQL does not accept all offsets that Python does.
        return value.astimezone(UTC).isoformat()
    except OverflowError as error:
        raise InvalidSubmission(f"{field}: lies outside the years 1 to 9999") from error


def _seconds(field: str, value: float, *, above_zero: bool = False) -> float:
    # Written so that NaN fails, too.
    if not (value > 0 if above_zero else value >= 0) or value > _SECONDS_MAX:
        least = "above 0" if above_zero else "0 or more"
        raise InvalidSubmission(f"{field}: must be {least} seconds, and at most {_SECONDS_MAX}")
    # Much shorter times do not fit the column.
    return max(float(value), _SECONDS_MIN) if above_zero else float(value)


def _retention(field: str, value: float) -> int:
    return math.ceil(_seconds(field, value))


def _fingerprint(endpoint: str, payload: bytes) -> bytes:
    return hashlib.blake2b(endpoint.encode() + b"\0" + payload, digest_size=16).digest()


def _lanes() -> str:
    return ", ".join(lane.value for lane in Lane)
