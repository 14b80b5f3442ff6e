"""The console script: the table of all commands. Each is one function in a module of this room."""

from __future__ import annotations

import sys
from typing import Annotated, Any, ClassVar

import typer

from warpsmith._version import __version__
from warpsmith.cli.app import CommandGroup, start


class _MainCommands(CommandGroup):
    table: ClassVar = {
        "optimize": ("optimize:optimize", "Evolve a faster kernel for an operator."),
        "evaluate": ("evaluate:evaluate", "Check and time kernel files against PyTorch."),
        "verify": ("verify:verify", "Test a kernel deeply and write a certificate."),
        "profile": ("profile:profile", "Show what limits a kernel's speed."),
        "tune": ("tune:tune", "Find good values for a kernel's tunables."),
        "export": ("export:export", "Write a kernel as a bundle for `warpsmith.load`."),
        "report": ("report:report", "Write a run or a bench as one HTML file."),
        "dashboard": ("dashboard:dashboard", "Serve runs as pages that follow them."),
        "runs": ("runs:runs", "List runs."),
        "show": ("runs:show", "Show a run, or one of its candidates."),
        "ask": ("ask_tell:ask", "Print the next brief of a run, to answer it yourself."),
        "tell": ("ask_tell:tell", "Answer a brief with a kernel."),
        "step": ("ask_tell:step", "Judge the pending kernels of a run."),
        "bench": ("main:bench_app", "Compare methods on a suite of tasks."),
        "suite": ("main:suite_app", "List the tasks that come with Warpsmith."),
        "kernels": ("main:kernels_app", "List and show the kernels that come with Warpsmith."),
        "models": ("main:models_app", "Try a language model: what works, how fast, at what cost."),
        "pool": ("pool:pool", "Add runs to the pool of known kernels, or search it."),
        "serve": ("main:serve_app", "Judge kernels for other machines, over HTTP."),
        "mcp": ("mcp:mcp", "Serve tools to coding agents over MCP."),
        "agent-guide": ("mcp:agent_guide", "Print a guide for coding agents."),
        "contract": ("contract:contract", "Show the entry point a kernel must have."),
        "demo": ("optimize:demo", "Optimise RMSNorm on this machine, to see how it works."),
        "doctor": ("doctor:doctor", "Show what this machine can do."),
    }


class _BenchCommands(CommandGroup):
    """`bench SUITE` means `bench run SUITE`."""

    table: ClassVar = {
        "run": ("bench:bench_run", "Run a bench, or continue one."),
        "resume": ("bench:bench_resume", "Continue a bench that was interrupted."),
        "show": ("bench_show:bench_show", "Show the results of a bench."),
        "compare": ("bench_show:bench_compare", "Show two benches side by side."),
        "judge": ("bench_judge:bench_judge", "Judge kernels of other systems."),
    }

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Add the word `run` where the first word is no command."""
        if args and args[0] not in self.table and args[0] not in ("-h", "--help"):
            args = ["run", *args]
        return super().parse_args(ctx, args)


class _ServeCommands(CommandGroup):
    """`serve` and `serve --port N` mean `serve run`."""

    table: ClassVar = {
        "run": ("serve:serve_run", "Serve until Ctrl-C."),
        "token": ("serve:serve_token", "Create a token for a client, or revoke it."),
        "tokens": ("serve:serve_tokens", "List the clients that have a token."),
    }

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Add the word `run` where the first word is no command."""
        if not args or (args[0] not in self.table and args[0] not in ("-h", "--help")):
            args = ["run", *args]
        return super().parse_args(ctx, args)


class _SuiteCommands(CommandGroup):
    table: ClassVar = {"list": ("suite:suite_list", "List the tasks of suites.")}


class _KernelCommands(CommandGroup):
    table: ClassVar = {
        "list": ("kernels:kernels_list", "List the kernels of the collection."),
        "show": ("kernels:kernels_show", "Show a kernel: what is known of it, and its source."),
    }


class _ModelCommands(CommandGroup):
    table: ClassVar = {"check": ("models:models_check", "Send one small brief and say what works.")}


def _group(commands: type[CommandGroup], help: str) -> typer.Typer:
    made = typer.Typer(
        name="warpsmith",
        cls=commands,
        help=help,
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    )
    made.callback()(_no_options)  # with a callback typer makes a group, although it knows of no command
    return made


def _no_options() -> None:
    pass


app = _group(
    _MainCommands,
    "Makes kernels faster by evolution, and judges them against PyTorch on an evaluator hardened against every attack "
    "we know.",
)
bench_app = _group(
    _BenchCommands,
    "Compare methods on a suite of tasks. `warpsmith bench SUITE` is short for `warpsmith bench run SUITE`.",
)
serve_app = _group(
    _ServeCommands, "Judge kernels for other machines, over HTTP. `warpsmith serve` is short for `warpsmith serve run`."
)
suite_app = _group(_SuiteCommands, "Suites of tasks that come with Warpsmith.")
models_app = _group(_ModelCommands, "Language models: try one before a run is spent on it.")
kernels_app = _group(_KernelCommands, "The collection: kernels that come with Warpsmith, and what is known of them.")


def _show_version(wanted: bool) -> None:
    if wanted:
        sys.stdout.write(f"warpsmith {__version__}\n")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit."),
    ] = False,
) -> None:
    pass


def main() -> None:
    """Run the command line of this process."""
    start(app)
