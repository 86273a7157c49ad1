"""Where the gateway's routes are."""

from __future__ import annotations


def service(name: str = "docs", *, org: str = "default", version: int | None = None) -> str:
    base = f"/api/v1/orgs/{org}/services/{name}"
    return base if version is None else f"{base}/v{version}"


def submit(
    path: str, name: str = "docs", *, org: str = "default", version: int | None = None
) -> str:
    return f"{service(name, org=org, version=version)}/async{path}"


def call(path: str, name: str = "docs", *, org: str = "default", version: int | None = None) -> str:
    return service(name, org=org, version=version) + path


def job(job_id: str, name: str = "docs", *, org: str = "default") -> str:
    return f"{service(name, org=org)}/jobs/{job_id}"


def hosted(name: str = "docs", *, org: str = "default", workspace: str = "default") -> str:
    return f"/api/v1/orgs/{org}/workspaces/{workspace}/hosted-services/{name}"


def jobs(name: str = "docs", *, org: str = "default", workspace: str = "default") -> str:
    return hosted(name, org=org, workspace=workspace) + "/jobs"
