"""What a claim may take, and what it must: the choice itself is the product's."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from coatcheck.domain.job import ClaimedJob
from coatcheck.domain.lanes import Lane
from coatcheck.domain.states import State
from tests.properties.job_model import JobModel, ModelJob

Flow = tuple[str, str, str]


def flow_of(job: ModelJob | ClaimedJob) -> Flow:
    return job.endpoint, job.org, job.queue_key


def claimable(
    model: JobModel, lane: Lane, endpoints: Sequence[str], *, limited: bool
) -> dict[Flow, list[ModelJob]]:
    """The queued jobs of each flow that a claim of this kind looks at, the first one first."""
    flows: dict[Flow, list[ModelJob]] = defaultdict(list)
    for job in model.having(State.QUEUED):
        is_served = job.lane is lane and job.endpoint in endpoints
        if is_served and bool(model.limits_on(job)) is limited:
            flows[flow_of(job)].append(job)
    return flows


def check_free_claim(
    model: JobModel,
    claimed: Sequence[ClaimedJob],
    rooms: Mapping[Lane, int],
    endpoints: Sequence[str],
) -> None:
    """Work under no limit is shared out evenly: over organisations, then over the flows of each, in
    the order in which their jobs came. What a flow leaves of its part is not dealt out again."""
    for lane, room in rooms.items():
        flows = claimable(model, lane, endpoints, limited=False)
        taken = Counter(flow_of(job) for job in claimed if job.lane is lane)
        assert set(taken) <= set(flows), "a claim took what it was not to look at"
        waiting = {
            org: [len(jobs) for flow, jobs in flows.items() if flow[1] == org]
            for _, org, _ in flows
        }
        got = {org: [jobs for flow, jobs in taken.items() if flow[1] == org] for _, org, _ in taken}
        found = min(len(waiting), room)
        assert len(got) == found, (
            f"{len(got)} organisations had a turn, of {len(waiting)}, room {room}"
        )
        if not found:
            continue
        share, left = divmod(room, found)
        more = sum(sum(jobs) > share for jobs in got.values())
        assert more <= left, "more organisations than the room allows got more than the others"
        for org, jobs in got.items():
            turns = min(len(waiting[org]), share)
            least = sum(sorted(min(each, share // turns) for each in waiting[org])[:turns])
            assert least <= sum(jobs) <= share + 1, f"{org} got {jobs}, of {share}"
            most = -(-(share + 1) // min(len(waiting[org]), share + 1))
            assert max(jobs) <= most, f"a flow of {org} got {max(jobs)}, not {most} at most"
    check_order(model, claimed)


def check_limited_claim(
    model: JobModel,
    claimed: Sequence[ClaimedJob],
    rooms: Mapping[Lane, int],
    endpoints: Sequence[str],
) -> None:
    """Work under limits is taken as far as permits go; and some of it is, if there is a permit."""
    jobs = [model.jobs[job.uuid] for job in claimed]
    for job in jobs:
        assert model.limits_on(job), "a limited claim took what is under no limit"
    for limit, most in model.limits.items():
        now_held = sum(limit in model.limits_on(job) for job in jobs)
        if now_held:
            held = model.held_under(limit) + now_held
            assert held <= most, f"{limit} allows {most}, and {held} are held"
    for lane, room in rooms.items():
        taken = sum(job.lane is lane for job in jobs)
        assert taken <= room, f"{taken} jobs for the room of {room}"
    could_start = [
        job
        for lane, room in rooms.items()
        if room
        for flow in claimable(model, lane, endpoints, limited=True).values()
        for job in flow
        if all(model.held_under(on) < model.limits[on] for on in model.limits_on(job))
    ]
    assert jobs or not could_start, "there was work and a permit for it, and nothing was taken"
    check_order(model, claimed)


def check_order(model: JobModel, claimed: Sequence[ClaimedJob]) -> None:
    """Nothing is taken while something of the same flow and lane that came before it waits."""
    taken = {job.uuid for job in claimed}
    assert len(taken) == len(claimed), "a job was given out twice"
    queued = model.having(State.QUEUED)
    for uuid in taken:
        job = model.jobs[uuid]
        assert job.state is State.QUEUED, f"a claim took a job that is {job.state}"
        for other in queued:
            if flow_of(other) == flow_of(job) and other.lane is job.lane:
                assert other.uuid in taken or other.run_at >= job.run_at, (
                    "a job was taken before one of its flow that was due earlier"
                )
