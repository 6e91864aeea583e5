"""Entry point of `kernevo`: finds the command, turns errors into messages and exit codes.

Exit codes: 0 done · 1 failed · 2 usage or config · 3 finished, nothing correct · 4 environment unusable ·
130 interrupted, state saved.
"""

from __future__ import annotations

import os
import select
import sys
import warnings
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from evaluator.errors import KernevoError
from evaluator.version import __version__
from evo.cli import failures
from evo.cli.apps import new_app

COMMANDS: dict[str, str] = {
    "run": "Start a campaign from a config file.",
    "resume": "Continue a run exactly where it stopped.",
    "status": "Show one run, or all runs of a folder.",
    "watch": "Follow a run while it goes on.",
    "show": "Show one candidate: prompt, answer, diff, verdict, reward.",
    "review": "Let a second model look for cheating in a run's candidates.",
    "compare": "Say which of two runs was better, and by how much.",
    "report": "Write a run's report.html.",
    "harvest": "Copy a run's best kernels out as a folder to use elsewhere.",
    "verify": "Judge the kernels of a harvest again.",
    "library": "Keep and find the kernels of many runs.",
    "export": "Write a run's trajectories for a training library.",
    "finetune": "Train a LoRA adapter on runs, for the model that proposes.",
    "evaluate": "Judge one kernel file on a task.",
    "serve": "Judge kernels over HTTP, as the environment of a trainer.",
    "tasks": "List, show and check tasks.",
    "init": "Make a task from a module of your own.",
    "doctor": "Say what this machine can and cannot do.",
    "schema": "Print the config's JSON schema for editors.",
}
"""Command -> its line in the help. The command `x` is `app` in `evo/cli/x.py`."""


class LazyGroup(TyperGroup):
    """Lists commands from `COMMANDS` and imports one only to call it, so that --help is quick."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Names in the order of the help."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """A stand-in that knows the help line; `resolve_command` brings the real one."""
        help_line = COMMANDS.get(cmd_name)
        return None if help_line is None else TyperCommand(cmd_name, help=help_line, short_help=help_line)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command called, imported now. An unknown one is a usage error that suggests the nearest."""
        if args and args[0] not in COMMANDS and not args[0].startswith("-") and not ctx.resilient_parsing:
            ctx.fail(unknown_command(args[0]))
        name, command, rest = super().resolve_command(ctx, args)
        if name in COMMANDS:
            command = typer.main.get_command(import_module(f"evo.cli.{name}").app)
            command.name = name
        return name, command, rest

    def invoke(self, ctx: Any) -> Any:
        """Run the command; a pipe that the reader closed ends it quietly, any other broken pipe is a fault."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            if not reader_is_gone():
                raise RuntimeError(f"a pipe broke: {error}") from error
            raise typer.Exit(1) from None


def unknown_command(name: str) -> str:
    """What to say about a command that does not exist."""
    import difflib

    near = difflib.get_close_matches(name, COMMANDS, n=1)
    return f"no command {name!r}. Did you mean {near[0]!r}?" if near else f"no command {name!r}"


app = new_app(cls=LazyGroup, no_args_is_help=True, add_completion=True)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"kernevo {__version__}")
        raise typer.Exit(0)


@app.callback()
def kernevo(
    debug: Annotated[bool, typer.Option("--debug", help="Show full tracebacks (as does KERNEVO_DEBUG=1).")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Make GPU kernels faster by evolution and reinforcement learning together."""
    if debug:
        os.environ["KERNEVO_DEBUG"] = "1"


def main(argv: list[str] | None = None) -> None:
    """Run one command and leave with its exit code. Never shows a traceback unless asked to."""
    warnings.showwarning = _show_warning
    try:
        _call(sys.argv[1:] if argv is None else argv)
    finally:
        close_stdout_quietly()


def _call(argv: list[str]) -> None:
    try:
        app(args=argv, prog_name="kernevo")
    except KernevoError as error:
        if failures.debugging():
            raise
        failures.show(str(error))
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)
    except Exception as error:
        if failures.debugging():
            raise
        failures.show(failures.crash_message(error, argv))
        sys.exit(1)


def _show_warning(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
    print(f"warning: {message}", file=sys.stderr)


def reader_is_gone() -> bool:
    """Whether stdout is a pipe whose reader has closed it, as `kernevo … | head` does."""
    poll = select.poll()
    try:
        poll.register(sys.stdout.fileno(), 0)
        return any(event & select.POLLERR for _, event in poll.poll(0))
    except (OSError, ValueError):
        return False  # stdout is no file at all, e.g. captured by a test


def close_stdout_quietly() -> None:
    """Keep Python's last flush from complaining about a pipe that is already closed."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    main()
