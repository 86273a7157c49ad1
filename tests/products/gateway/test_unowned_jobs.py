"""A job that was handed in past HTTP belongs to no user: its organisation's admins may see it."""

from __future__ import annotations

from coatcheck.domain.tenants import Scope
from tests.products.gateway.docs_service import docs
from tests.products.house import House, bearer


async def test_it_is_shown_to_admins_and_to_nobody_else(house: House) -> None:
    await house.work(docs)
    ticket = await house.engine.submit("docs.post__analyze", {"content": "a"})
    url = f"/api/v1/orgs/default/services/docs/jobs/{ticket.id}"
    assert (await house.http.get(url)).status_code == 200
    reader = await house.create_key(user="dev", scopes=[Scope.READ, Scope.SUBMIT])
    assert (await house.http.get(url, headers=bearer(reader))).status_code == 404
    del house.http.headers["Authorization"]
    assert (await house.http.get(url)).status_code == 401
