"""Bare Starlette: reads a JSON body and sends it back. Stores nothing."""

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route


async def echo(request: Request) -> JSONResponse:
    return JSONResponse(await request.json())


app = Starlette(routes=[Route("/echo", echo, methods=["POST"])])
