"""An OpenAI-compatible server for tests: answers by applying the catalogue, and fails as it is told.

`FakeServer(script=[…])` takes one behaviour for each chat request, in the order of arrival; afterwards it answers
normally. Nothing here sleeps: what hangs, hangs until the client gives up or the server is closed.
"""

from __future__ import annotations

import json
import random
import re
import socket
import sys
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from evaluator.task import load_task
from policy.rewrites import RewriteContext, RewriteError
from policy.rewrites.catalogue import rewrite_named

MODEL = "tiny"
CONTEXT = 8192


class ReplyError(Exception):
    """A behaviour's HTTP answer in place of the normal one."""

    def __init__(self, status: int, body: Any, headers: dict[str, str] | None = None) -> None:
        super().__init__(status)
        self.status, self.body, self.headers = status, body, headers or {}


Behaviour = Callable[["FakeServer", dict[str, Any], "_Handler"], Any]


def normal(server, body, handler):
    """Answer every choice by the server's `answer`."""
    return server.completion(body, [server.answer(body, index) for index in range(body["n"])])


def says(text: str, finish_reason: str = "stop") -> Behaviour:
    """Every choice is this text."""
    return lambda server, body, handler: server.completion(body, [text] * body["n"], finish_reason)


def calls(name: str, arguments: dict[str, Any]) -> Behaviour:
    """A choice that calls one tool and says nothing."""

    def answer(server, body, handler):
        made = server.completion(body, [""], "tool_calls")
        function = {"name": name, "arguments": json.dumps(arguments)}
        made["choices"][0]["message"] = {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "call-1", "type": "function", "function": function}],
        }
        return made

    return answer


def error(status: int, message: str, **headers: str) -> Behaviour:
    """An error in the OpenAI shape; `retry_after="0.01"` becomes a header."""

    def fail(server, body, handler):
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        raise ReplyError(status, {"error": {"message": message, "type": "error", "code": status}}, named)

    return fail


def body(text: str) -> Behaviour:
    """Status 200 with any body."""

    def answer(server, request, handler):
        raise ReplyError(200, text)

    return answer


def hangs(server, body, handler):
    """Say nothing until the server is closed; the client's timeout ends it."""
    server.closing.wait()
    raise ConnectionAbortedError


def drops(server, body, handler):
    """Promise a long answer, send the beginning, cut the line."""
    handler.send_response(200)
    handler.send_header("Content-Type", "application/json")
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    handler.wfile.write(b'{"choices": [')
    handler.wfile.flush()
    handler.connection.shutdown(socket.SHUT_RDWR)
    raise ConnectionAbortedError


def structured_answer(body: dict[str, Any], index: int) -> str:
    """By the schema, with the request's seed: a rewrite that applies to the prompt's kernel, or values of tunables."""
    rng = random.Random(f"{body.get('seed')} {index}")
    wanted = _schema(body).get("properties", {})
    if "tunables" in wanted:
        space = wanted["tunables"]["properties"]
        return json.dumps({"tunables": {name: rng.choice(values["enum"]) for name, values in space.items()}})
    if "steps" not in wanted:
        return json.dumps({"steps": [{"name": "use_rsqrt", "args": {}}]})
    prompt = "\n".join(message["content"] for message in body["messages"])
    contexts = [RewriteContext.of_task(load_task(name)) for name in ("softmax", "matmul") if name in prompt]
    for source in re.findall(r"```python\n(.*?)\n```", prompt, re.DOTALL):
        moves = list(_moves(source + "\n", contexts, body))
        if moves:
            name, args = rng.choice(moves)
            return json.dumps({"steps": [{"name": name, "args": args}]})
    return json.dumps({"steps": [{"name": "use_rsqrt", "args": {}}]})


def _schema(body: dict[str, Any]) -> dict[str, Any]:
    """The answer's schema, in whichever field it travels."""
    if "response_format" in body:
        return body["response_format"]["json_schema"]["schema"]
    return body.get("guided_json") or body.get("structured_outputs", {}).get("json", {})


def _moves(source: str, contexts: list[RewriteContext], body: dict[str, Any]) -> Iterable[tuple[str, dict[str, Any]]]:
    for name in _names(body):
        for context in contexts[:1]:
            with suppress(RewriteError):
                for args in rewrite_named(name).candidates(source, context):
                    yield name, args.model_dump(mode="json")


def _names(body: dict[str, Any]) -> list[str]:
    items = _schema(body)["properties"]["steps"]["items"]
    if "enum" in items:
        return list(dict.fromkeys(step["name"] for step in items["enum"]))
    return [option["properties"]["name"]["const"] for option in items["oneOf"]]


class FakeServer:
    """A server on a free port of this machine; a context manager."""

    def __init__(
        self,
        script: Iterable[Behaviour] = (),
        *,
        answer: Callable[[dict[str, Any], int], str] = structured_answer,
        dies_after: int | None = None,
        models: dict[str, int | None] | None = None,
        together: int = 0,
        adapters: bool = False,
        tokenizes: bool = False,
    ) -> None:
        self.script = list(script)
        self.answer = answer
        self.dies_after = dies_after
        self.models = {MODEL: CONTEXT} if models is None else models
        self.gate = threading.Barrier(together) if together else None
        self.adapters: dict[str, str] | None = {} if adapters else None
        self.tokenizes = tokenizes
        self.requests: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.calls: list[str] = []
        self.most_in_flight = 0
        self.closing = threading.Event()
        self.mistakes: list[BaseException] = []
        self._in_flight = 0
        self._lock = threading.Lock()
        self._http = _Http(("127.0.0.1", 0), _Handler)
        self._http.owner = self
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_address[1]}/v1"

    def __enter__(self):
        return self

    def __exit__(self, *details) -> None:
        self.close()

    def close(self) -> None:
        self.closing.set()
        if self.gate is not None:
            self.gate.abort()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()
        if self.mistakes:
            raise self.mistakes[0]

    def chat(self, body: dict[str, Any], handler: _Handler) -> Any:
        with self._lock:
            if self.dies_after is not None and len(self.requests) >= self.dies_after:
                raise ConnectionAbortedError
            self.requests.append(body)
            self.headers.append({name.lower(): value for name, value in handler.headers.items()})
            behave = self.script.pop(0) if self.script else normal
            self._in_flight += 1
            self.most_in_flight = max(self.most_in_flight, self._in_flight)
        try:
            if self.gate is not None:
                self.gate.wait()
            return behave(self, body, handler)
        finally:
            with self._lock:
                self._in_flight -= 1

    def completion(self, body: dict[str, Any], texts: list[str], finish_reason: str = "stop") -> dict[str, Any]:
        """A chat completion as vLLM sends it: one token for each byte."""
        choices = []
        for index, text in enumerate(texts):
            ids = list(text.encode("utf-8", "replace"))
            choice: dict[str, Any] = {
                "index": index,
                "message": {"role": "assistant", "content": text},
                "finish_reason": finish_reason,
            }
            if body.get("logprobs"):
                choice["logprobs"] = {"content": [{"token": "x", "logprob": -0.5, "top_logprobs": []} for _ in ids]}
            if body.get("return_token_ids"):
                choice["token_ids"] = ids
            choices.append(choice)
        prompt = list(range(10))
        usage = {"prompt_tokens": len(prompt), "completion_tokens": sum(map(len, texts)), "total_tokens": 0}
        answer = {"id": "x", "object": "chat.completion", "created": 0, "model": body["model"], "choices": choices}
        extra = {"prompt_token_ids": prompt} if body.get("return_token_ids") else {}
        return {**answer, "usage": usage, **extra}

    def reply(self, path: str, body: dict[str, Any], handler: _Handler) -> Any:
        self.calls.append(path)
        if path.endswith("/models"):
            rows = [{"id": name, "object": "model", "max_model_len": length} for name, length in self.models.items()]
            return {"object": "list", "data": rows}
        if path == "/tokenize" and self.tokenizes:
            return {"count": len(body["prompt"].split()), "max_model_len": CONTEXT, "tokens": []}
        if path.endswith("_lora_adapter"):
            return self._adapter(path, body)
        if not path.endswith("/chat/completions"):
            raise ReplyError(404, {"detail": "Not Found"})
        if body["model"] not in {**self.models, **(self.adapters or {})}:
            raise ReplyError(404, {"error": {"message": f"The model `{body['model']}` does not exist.", "code": 404}})
        return self.chat(body, handler)

    def _adapter(self, path: str, body: dict[str, Any]) -> str:
        if self.adapters is None:
            raise ReplyError(404, {"detail": "Not Found"})
        name = body["lora_name"]
        if path.endswith("/unload_lora_adapter"):
            self.adapters.pop(name)
        elif name in self.adapters:
            raise ReplyError(
                400, {"error": {"message": f"The lora adapter '{name}' has already been loaded.", "code": 400}}
            )
        else:
            self.adapters[name] = body["lora_path"]
        return "Success"


class _Http(ThreadingHTTPServer):
    request_queue_size = 256
    daemon_threads = True
    block_on_close = False
    owner: FakeServer

    def handle_error(self, request, client_address):
        error = sys.exc_info()[1]
        if not isinstance(error, ConnectionError):  # a line that was cut is part of a test
            self.owner.mistakes.append(error)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Http

    def do_GET(self) -> None:
        self._answer({})

    def do_POST(self) -> None:
        length = int(self.headers["Content-Length"])
        sent = self.rfile.read(length)
        if len(sent) < length:
            raise ConnectionAbortedError("the client hung up in the middle of its request")
        self._answer(json.loads(sent))

    def _answer(self, body: dict[str, Any]) -> None:
        try:
            self._send(200, self.server.owner.reply(self.path, body, self))
        except ReplyError as reply:
            self._send(reply.status, reply.body, reply.headers)
        except (ConnectionError, threading.BrokenBarrierError):
            self.close_connection = True
            with suppress(OSError):
                self.connection.shutdown(socket.SHUT_RDWR)

    def _send(self, status: int, body: Any, headers: dict[str, str] | None = None) -> None:
        text = body if isinstance(body, str) else json.dumps(body)
        self.send_response(status)
        self.send_header("Content-Type", "text/plain" if text == "Success" else "application/json")
        self.send_header("Content-Length", str(len(text.encode())))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, format, *args) -> None:
        pass
