"""The report of a run at an address of this machine, made anew when the run has news.

The page asks `/state` for the length of the journal and loads itself again when it has grown; a page is made at most
once at a time and not oftener than every few seconds, however many ask.
"""

from __future__ import annotations

import socket
import sys
import threading
import time
from pathlib import Path

import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from evaluator.errors import EnvironmentUnusableError, KernevoError
from evo.report.render import Live, page_of
from evo.run import Run, existing

LOCAL_HOSTS = ["localhost", "127.0.0.1"]
"""Names that a browser may call this server by: other sites cannot reach it by a name of their own."""


class Pages:
    """The newest page of one run."""

    def __init__(self, path: Path, every: float) -> None:
        """Raises UsageError where the folder holds no run. `every` is in seconds."""
        self._path, self._every = path, every
        self._journal = existing(path).journal
        self._lock = threading.Lock()
        self._page, self._version, self._made = "", -1, 0.0

    @property
    def version(self) -> int:
        """Length of the journal in bytes."""
        return self._journal.stat().st_size

    def page(self) -> str:
        """The report, made anew where the journal has grown and the last one is old enough."""
        with self._lock:
            version = self.version
            if version != self._version and time.monotonic() - self._made >= self._every:
                run = Run.load(self._path)
                self._page = page_of(run, Live(version, self._every, run.status))
                self._version, self._made = version, time.monotonic()
            return self._page

    def state(self) -> dict[str, object]:
        """What the open page asks for."""
        return {"version": self.version}


def app_of(pages: Pages) -> Starlette:
    """The application: `/` and `/state`."""

    def page(_: Request) -> Response:
        return HTMLResponse(pages.page(), headers={"Cache-Control": "no-store"})

    def state(_: Request) -> Response:
        return JSONResponse(pages.state(), headers={"Cache-Control": "no-store"})

    def failed(_: Request, error: Exception) -> Response:
        return PlainTextResponse(f"error: {error}\n", status_code=500)

    return Starlette(
        routes=[Route("/", page), Route("/state", state)],
        middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=LOCAL_HOSTS)],
        exception_handlers={KernevoError: failed, OSError: failed},
    )


def serve(path: Path, every: float, port: int) -> None:
    """Serve the page on 127.0.0.1 until Ctrl-C. Raises EnvironmentUnusableError when the port is taken."""
    pages = Pages(path, every)
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind(("127.0.0.1", port))
    except OSError as error:
        listening.close()
        raise EnvironmentUnusableError(
            f"port {port}: cannot be used: {error.strerror}", "--port 0 takes a free one"
        ) from None
    address = f"http://127.0.0.1:{listening.getsockname()[1]}/"
    print(f"watching {path} at {address} (Ctrl-C ends)", file=sys.stderr, flush=True)
    config = uvicorn.Config(app_of(pages), log_level="warning", access_log=False, server_header=False, lifespan="off")
    uvicorn.Server(config).run(sockets=[listening])
