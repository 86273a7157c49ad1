"""Submit one job and wait for its result.

make up ARGS="examples.hello:hello examples.documents:documents"
COATCHECK_API_KEY=$(cat .coatcheck/dev-key) .venv/bin/python examples/client/greet.py
"""

from coatcheck import Client

with Client() as client:
    job = client.submit("hello", "greet", {"name": "Ada"})
    print(f"{job.status}, so far")
    job.wait(timeout=60)
    print(f"{job.status}: {job.result['greeting']}")

    # Or in one go, if the result is all you want.
    print(client.call("hello", "greet", {"name": "Grace"})["greeting"])
