"""Queues jobs that the bench writes by SQL, as the product queues those that are submitted."""

from coatcheck.core.queries import sql


def queueing(insert: str) -> str:
    """An INSERT INTO jobs that also queues them."""
    return f"""
        WITH queued AS ({insert} RETURNING org_id, id, lane, endpoint, flow, run_at)
        {sql("queue/add")}
    """
