"""A policy that asks a language model, many questions at once, and never lets the model's failures hurt the search.

Asking happens on an event loop in a thread of its own, computing on a second thread, so that `submit` returns at once.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from evaluator.types import Task
from policy.chat import Answer, AskError, ChatModel, Question
from policy.loop_thread import LoopThread
from policy.model_chat import ModelChat
from policy.model_children import Child, Unusable, Workshop, proposal_of
from policy.outcomes import Outcomes, Pause
from policy.prompting import Phase, Prompt, Repair
from policy.rule_policy import RulePolicy
from policy.tool_desk import Talk, ToolDesk, Usage
from policy.types import ParentView, Proposal, ProposalRequest

ResultT = TypeVar("ResultT")

SHRINK = 0.7
"""Factor on the prompt's budget after a server said that a prompt was too long: token counts are estimates."""
ANALYSES = 256
"""Parents whose analysis is remembered."""
_SEEDS = 2**31 - 1


@dataclass(frozen=True)
class ModelSettings:
    """How questions are asked and what happens when they fail."""

    phases: tuple[Phase, ...] = ("generate",)
    tune: float = 0.0
    """Share of the requests that ask for another config of a correct parent, not for a new structure."""
    max_tokens: int = 2048
    """Of one answer; never more than half of the context."""
    repair: bool = True
    """Whether an unusable answer is sent back once, with the reason."""
    on_failure: Literal["fallback", "stop"] = "fallback"
    pause_s: float = 30.0
    """Seconds without questions after a failure that lasts."""
    unusable_limit: int = 50
    """With `on_failure: stop`: requests in a row without a usable answer before it counts as a failure."""


@dataclass(frozen=True)
class _Asked:
    """One answer and the question it belongs to."""

    question: Question
    answer: Answer
    phase: Phase
    repairs: int = 0


@dataclass(frozen=True)
class _Analysis:
    """What the model thinks of a parent, and what tools it used to find out; None where it has none."""

    text: str = ""
    tools: Usage | None = None


class ModelPolicy:
    """Children written by a `ChatModel`; where it fails, by the rule policy, or nothing goes on (`on_failure: stop`).

    `propose` raises AskError with `on_failure: stop` alone. Answers that cannot be used are missing; a request for
    which nothing usable came goes to the rules too. Not deterministic: servers batch as they like.
    """

    deterministic = False

    def __init__(
        self,
        name: str,
        chat: ChatModel,
        workshop: Workshop,
        settings: ModelSettings | None = None,
        tools: ToolDesk | None = None,
    ) -> None:
        self.name = name
        self.settings = settings or ModelSettings()
        self._chat = chat
        self._workshop = workshop
        self._fallback = RulePolicy(rewrites=workshop.rewrites)
        self._desk = tools
        self._outcomes = Outcomes()
        self._pause = Pause(self.settings.pause_s)
        self._analyses: OrderedDict[str, asyncio.Task[_Analysis]] = OrderedDict()
        self._budget: int | None = None
        self._fruitless = 0
        self._loop: LoopThread | None = None
        self._worker: ThreadPoolExecutor | None = None
        self._closed = False

    def propose(self, requests: Sequence[ProposalRequest]) -> list[list[Proposal]]:
        """Children for each request. Raises AskError with `on_failure: stop` alone."""
        return self.submit(requests).result()

    def submit(self, requests: Sequence[ProposalRequest]) -> Future[list[list[Proposal]]]:
        """Like `propose`, without waiting: the future holds what `propose` would return or raise."""
        return self.on_loop(self._answer_all(list(requests)))

    def on_loop(self, work: Coroutine[Any, Any, ResultT]) -> Future[ResultT]:
        """Run `work` on the event loop that questions are asked on, without waiting."""
        assert not self._closed
        if self._loop is None:
            self._loop = LoopThread(f"kernevo-{self.name}")
            self._worker = ThreadPoolExecutor(1, thread_name_prefix=f"kernevo-{self.name}-worker")
        return self._loop.start(work)

    def hear(self, task: Task, judged: Sequence[ParentView]) -> None:
        """Keep judged candidates for later prompts. Raises KernevoError when their file cannot be written."""
        self._workshop.keep(task, judged)

    def summary(self) -> dict[str, Any]:
        """What was asked and what came of it, in this process: counts, tokens, dollars, and use of tools."""
        used = {} if self._desk is None else {"tools": self._desk.usage()}
        return {**self._outcomes.summary(), **self._chat.spent(), **used}

    def close(self) -> None:
        """Cancel questions in flight and let go of the server; safe to call twice. Nothing can be asked afterwards."""
        self._closed = True
        if self._desk is not None:
            self._desk.close(self._loop.cancel if self._loop is not None else lambda: None)
        if self._loop is not None and self._worker is not None:
            self._loop.close(self._chat.close())
            self._worker.shutdown()
            self._loop = self._worker = None
        self._analyses.clear()
        self._workshop.forget()
        self._fallback.close()

    async def _answer_all(self, requests: list[ProposalRequest]) -> list[list[Proposal]]:
        tasks = [asyncio.ensure_future(self._answer(request)) for request in requests]
        try:
            return list(await asyncio.gather(*tasks))
        finally:
            for task in tasks:
                task.cancel()

    async def _answer(self, given: ProposalRequest) -> list[Proposal]:
        phase = await self._compute(lambda: self._workshop.phase(given, self.settings.tune))
        if phase is None:
            return []
        if (paused := self._pause.reason) is not None:
            return await self._fall_back(given, paused)
        # Once for all prompts of the request: the store may grow while its answers are awaited.
        request = await self._compute(lambda: self._workshop.in_context(given))
        try:
            children = await self._children(request, phase)
        except AskError as error:
            self._failed(error)
            return await self._fall_back(request, error.reason)
        self._fruitless = 0 if children else self._fruitless + 1
        if children:
            return children
        if self.settings.on_failure == "stop" and self._fruitless >= self.settings.unusable_limit:
            raise AskError(
                "bad_response",
                f"{self._chat.model}: no usable answer to {self._fruitless} requests in a row",
                "`kernevo doctor --policy CONFIG` shows an answer; policy.on_failure: fallback goes on with rules",
            )
        return await self._fall_back(request, "no_usable_answer")

    def _failed(self, error: AskError) -> None:
        """Count a failure. Raises it where the config says to stop."""
        stops = self.settings.on_failure == "stop"
        told = "the campaign stops" if stops else "the rule policy answers in its place"
        self._outcomes.failed(self.name, error, told)
        if stops:
            raise error
        self._pause.after(error)

    async def _fall_back(self, request: ProposalRequest, reason: str) -> list[Proposal]:
        if self.settings.on_failure == "stop":
            return []
        self._outcomes.count_in("fallbacks", reason)
        return (await self._compute(lambda: self._fallback.propose([request])))[0]

    async def _children(self, request: ProposalRequest, phase: Phase) -> list[Proposal]:
        analysed = await self._analysis(request) if "analyse" in self.settings.phases else _Analysis()
        analysis = analysed.text
        schema = await self._compute(lambda: self._workshop.schema(request, phase))
        question, answers = await self._ask(request, phase, n=request.count, analysis=analysis, schema=schema)
        given = [_Asked(question, answer, phase) for answer in answers]
        read = await asyncio.gather(*(self._readable(request, asked, analysis) for asked in given))
        return self._new(request, [found for found in read if found is not None], analysed.tools)

    async def _readable(self, request: ProposalRequest, asked: _Asked, analysis: str) -> tuple[Child, _Asked] | None:
        """The child of one answer, after a repair turn where it needs one; None when there is none."""
        found = await self._compute(lambda: self._workshop.read(request, asked.answer, asked.phase))
        if isinstance(found, Child) and not found.objection:
            return found, asked
        if isinstance(found, Unusable) and found.kind == "unchanged":
            self._outcomes.count("unchanged")
            return None
        words = found.words if isinstance(found, Unusable) else found.objection
        second = await self._repaired(request, asked, words, analysis) if self.settings.repair else None
        if second is not None:
            again = await self._compute(lambda: self._workshop.read(request, second.answer, asked.phase))
            if isinstance(again, Child):
                self._outcomes.count("repaired")
                return again, second
            found = again if isinstance(found, Unusable) else found
        if isinstance(found, Child):
            # The static stage will refuse it; the verdict belongs on the record.
            return found, asked
        self._outcomes.count_in("unusable", found.kind)
        return None

    async def _repaired(self, request: ProposalRequest, asked: _Asked, words: str, analysis: str) -> _Asked | None:
        repair = Repair(answer=asked.answer.text, error=words)
        try:
            question, answers = await self._ask(
                request, asked.phase, analysis=analysis, schema=asked.question.schema, repair=repair
            )
        except AskError as error:
            self._failed(error)
            return None
        return _Asked(question, answers[0], asked.phase, repairs=1)

    async def _analysis(self, request: ProposalRequest) -> _Analysis:
        """What the model thinks bounds the parent: asked once for each parent, so that its children share a prompt."""
        parent = request.parents[0]
        key = f"{parent.candidate_id} {parent.source.sha}"
        known = self._analyses.get(key)
        if known is None or (known.done() and (known.cancelled() or known.exception() is not None)):
            known = self._analyses[key] = asyncio.ensure_future(self._analyse(request))
            while len(self._analyses) > ANALYSES:
                self._analyses.popitem(last=False)
        # Shielded: a request that is cancelled must not cancel what the others wait for.
        return await asyncio.shield(known)

    async def _analyse(self, request: ProposalRequest) -> _Analysis:
        talk = None if self._desk is None else await self._talk(request, self._desk)
        if talk is not None and talk.text:
            return _Analysis(talk.text, talk.usage)
        # Without tools, or what they found left no room for an answer.
        _, answers = await self._ask(request, "analyse")
        return _Analysis(answers[0].text.strip(), None if talk is None else talk.usage)

    async def _talk(self, request: ProposalRequest, desk: ToolDesk) -> Talk:
        """The analysis with tools, which get half of the room that the answer leaves."""
        assert self._loop is not None
        context = await self._chat.context_tokens()
        longest = min(self.settings.max_tokens, context // 2)
        room = (context - longest) // 2
        budget = context - longest - room
        try:
            prompt = await self._compute(lambda: self._workshop.prompt(request, budget, phase="analyse"))
        except AskError as error:
            if error.reason != "context_overflow":
                raise
            return Talk(None, {})
        messages = [message.model_dump() for message in prompt.messages]
        chat = ModelChat(
            self._chat,
            self._loop,
            max_tokens=longest,
            tokens=self._workshop.tokens,
            seed=request.seed % _SEEDS,
        )
        return await desk.talk(chat, messages, request, room, self._outcomes.count)

    async def _ask(
        self,
        request: ProposalRequest,
        phase: Phase,
        *,
        n: int = 1,
        analysis: str = "",
        schema: Mapping[str, Any] | None = None,
        repair: Repair | None = None,
    ) -> tuple[Question, list[Answer]]:
        """One question. A prompt that the server finds too long is cut further, once."""
        context = await self._chat.context_tokens()
        longest = min(self.settings.max_tokens, context // 2)

        async def once() -> tuple[Question, list[Answer]]:
            budget = self._budget or context - longest
            prompt: Prompt = await self._compute(
                lambda: self._workshop.prompt(request, budget, phase=phase, analysis=analysis, repair=repair)
            )
            seed = request.seed % _SEEDS
            question = Question(prompt.messages, prompt.tokens, longest, n, seed, schema)
            self._outcomes.count("asked", n)
            try:
                answers = await self._chat.ask(question)
            except AskError as error:
                if error.reason == "context_overflow":
                    self._budget = min(self._budget or budget, int(budget * SHRINK))
                raise
            self._outcomes.count("answered", len(answers))
            return question, answers

        try:
            return await once()
        except AskError as error:
            if error.reason != "context_overflow":
                raise
        return await once()

    def _new(
        self, request: ProposalRequest, found: Sequence[tuple[Child, _Asked]], tools: Usage | None
    ) -> list[Proposal]:
        known: set[str] = set()
        proposals = []
        for child, asked in found:
            if child.program in known or child.program in request.taken:
                self._outcomes.count("duplicates")
                continue
            known.add(child.program)
            name = asked.answer.asked_model or self._chat.model
            more = {**self._chat.sampling, "asked_model": name, "repairs": asked.repairs, "tools": tools}
            proposals.append(proposal_of(request, child, asked.question, asked.answer, self.name, **more))
        self._outcomes.count("proposed", len(proposals))
        return proposals

    async def _compute(self, work: Callable[[], ResultT]) -> ResultT:
        """Run what takes processor time on the worker's thread, so that the event loop stays free for the network."""
        return await asyncio.get_running_loop().run_in_executor(self._worker, work)
