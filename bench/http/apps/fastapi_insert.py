"""A typical first version: FastAPI, a pooled connection, one INSERT and one commit per request."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg
from fastapi import FastAPI
from pydantic import BaseModel

ADDRESS_VARIABLE = "BENCH_ADDRESS"
POOL_CONNECTIONS = 20


class Work(BaseModel):
    n: int
    pad: str


class Accepted(BaseModel):
    job_id: int


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    async with asyncpg.create_pool(
        os.environ[ADDRESS_VARIABLE], min_size=POOL_CONNECTIONS, max_size=POOL_CONNECTIONS
    ) as pool:
        await pool.execute(
            """
            CREATE TABLE IF NOT EXISTS work (
                id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
                payload jsonb NOT NULL,
                created_at timestamptz NOT NULL DEFAULT now()
            )
            """
        )
        app.state.pool = pool
        yield


app = FastAPI(lifespan=lifespan)


@app.post("/submit", status_code=202)
async def submit(work: Work) -> Accepted:
    job_id = await app.state.pool.fetchval(
        "INSERT INTO work (payload) VALUES ($1) RETURNING id", work.model_dump_json()
    )
    return Accepted(job_id=job_id)
