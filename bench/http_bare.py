"""A bare handler of Starlette's that claims and completes on a watch: what bench/http_calls.py compares with."""

from __future__ import annotations

import asyncio
import json
import socket
import sys

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from allswell.app import make_watch, store_for


async def main(url: str) -> None:
    """Serve until ended."""
    async with make_watch(store_for(url)) as watch:

        async def claim(request: Request) -> Response:
            given = json.loads(await request.body())
            lease = await watch.claim(agent="bench", roles=given["roles"], command=request.headers["idempotency-key"])
            assert lease is not None
            return JSONResponse({"task": lease.task, "token": lease.token})

        async def done(request: Request) -> Response:
            given = json.loads(await request.body())
            held = watch.held(given["task"], given["token"], "bench")
            await held.complete(given["result"], command=request.headers["idempotency-key"])
            return JSONResponse({"done": True})

        app = Starlette(routes=[Route("/claim", claim, methods=["POST"]), Route("/done", done, methods=["POST"])])
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as made:
            made.bind(("127.0.0.1", 0))
            made.listen(64)
            print(f"serving http://127.0.0.1:{made.getsockname()[1]};", file=sys.stderr, flush=True)
            config = uvicorn.Config(
                app, http="h11", log_config=None, access_log=False, lifespan="off", timeout_keep_alive=75
            )
            await uvicorn.Server(config).serve(sockets=[made])


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
