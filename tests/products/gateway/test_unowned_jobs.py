"""A job that was handed in past HTTP belongs to no user: its organisation's admins may see it."""

from __future__ import annotations

from coatcheck.domain.tenants import Scope
from tests.deployment import Deployment, bearer
from tests.products.gateway.docs_service import docs


async def test_it_is_shown_to_admins_and_to_nobody_else(deployment: Deployment) -> None:
    await deployment.start_worker(docs)
    ticket = await deployment.engine.submit("docs.post__analyze", {"content": "a"})
    url = f"/api/v1/orgs/default/services/docs/jobs/{ticket.id}"
    assert (await deployment.http.get(url)).status_code == 200
    reader = await deployment.create_key(user="dev", scopes=[Scope.READ, Scope.SUBMIT])
    assert (await deployment.http.get(url, headers=bearer(reader))).status_code == 404
    del deployment.http.headers["Authorization"]
    assert (await deployment.http.get(url)).status_code == 401
