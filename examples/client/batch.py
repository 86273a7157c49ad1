"""Submit a batch of tasks, follow it, rerun its failures, and download its results.

make up ARGS="examples.hello:hello examples.documents:documents"
COATCHECK_API_KEY=$(cat .coatcheck/dev-key) .venv/bin/python examples/client/batch.py
"""

from coatcheck import Client

TEXTS = ["to be", "or not to be", ""]


def tasks():
    for number, text in enumerate(TEXTS):
        yield {"custom_id": f"text-{number}", "input": {"text": text, "algorithm": "sha256"}}
    yield {"custom_id": "odd", "input": {"text": "that is", "algorithm": "rot13"}}


with Client() as client:
    batch = client.batches.submit("documents", "/digest", tasks(), concurrency=2)
    batch.wait(timeout=60)
    print(f"{batch.status}: {batch.counts.succeeded} of {batch.counts.total} succeeded")
    for task in batch.tasks(status="failed"):
        print(f"{task.custom_id}: {task.error.code}")

    batch.rerun(status="failed")
    batch.wait(timeout=60)
    print(f"run {batch.runs[-1].number}: {batch.counts.failed} failed again")

    first = batch.runs[0]
    print(batch.export("digests.zip", run=first.id, timeout=60))
