"""What a request must get past before anything of it is read: the token, and the limit on its size."""

from __future__ import annotations

import hmac
import json
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]

OPEN_PATHS = ("/health",)
"""Paths that need no token."""


class Guard:
    """ASGI middleware. `token` None lets everybody in, `refused` is told the reason of every refusal."""

    def __init__(self, app: Application, token: str | None, max_bytes: int, refused: Callable[[str], None]) -> None:
        self._app, self._max_bytes, self._refused = app, max_bytes, refused
        self._expected = None if token is None else token.encode()

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Answer 401 or 413, or pass the request on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = {name.lower(): value for name, value in scope["headers"]}
        if scope["path"] not in OPEN_PATHS and not self._may_enter(headers.get(b"authorization", b"")):
            fix = "send `Authorization: Bearer TOKEN` with the token that the server was started with"
            await self._refuse(send, 401, "unauthorized", "the token is missing or wrong", fix)
            return
        length = headers.get(b"content-length", b"0")
        if not length.isdigit() or int(length) > self._max_bytes:
            await self._too_large(send)
            return
        await self._counted(scope, receive, send)

    async def _counted(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Pass on, counting what comes: a body without a declared length can be of any size."""
        seen, began = 0, False

        async def counting() -> Message:
            nonlocal seen
            message = await receive()
            seen += len(message.get("body", b""))
            # To the application the client is gone; what it says to that is not sent.
            return {"type": "http.disconnect"} if seen > self._max_bytes else message

        async def noting(message: Message) -> None:
            nonlocal began
            if began or seen <= self._max_bytes:
                began = True
                await send(message)

        try:
            await self._app(scope, counting, noting)
        finally:
            if not began and seen > self._max_bytes:
                await self._too_large(send)

    def _may_enter(self, header: bytes) -> bool:
        if self._expected is None:
            return True
        kind, _, given = header.partition(b" ")
        return hmac.compare_digest(given.strip(), self._expected) and kind.lower() == b"bearer"

    async def _too_large(self, send: Send) -> None:
        fix = "send shorter sources, or start the server with a larger --max-source-kb"
        await self._refuse(send, 413, "too_large", f"the body is larger than {self._max_bytes} bytes", fix)

    async def _refuse(self, send: Send, status: int, error: str, message: str, fix: str) -> None:
        self._refused(error)
        body = json.dumps({"error": error, "message": message, "fix": fix}).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        # What was not read would be taken for the next request.
        headers += [(b"connection", b"close")] if status == 413 else [(b"www-authenticate", b"Bearer")]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})
