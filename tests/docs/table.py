"""What is done with every command and every Python block of the documentation, page by page, in their order.

A command is run as it stands (`Run`; `more` are options that make it short), or not, for a reason (`Excepted`): then
its options must exist all the same. `quick` marks what the ordinary test run does; the rest is for `make test-all`.
Python blocks are executed (`Execute`), or only compiled, for a reason (`Compiled`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class Why(StrEnum):
    """Why something is not run."""

    INSTALLS = "it installs packages, and needs a network for it"
    SETS_UP = "it sets up an environment of its own"
    SHELL = "it changes the reader's own shell; a walk has an environment of its own"
    SERVER = "it is another project's server, and needs a GPU"
    GPU = "it needs an NVIDIA GPU"
    WHOLE = "it is made for hours on a GPU"
    MODEL = "its model is a placeholder"
    SERVES = "it serves until it is ended, or asks such a server; tests/server has both"
    TRACKER = "it logs to a server of others; tests/loggers reads what is logged"
    CLUSTER = "it needs a cluster, or starts one; tests/engine has one"
    AGENT = "it is a command of another program, or it serves until it is ended; tests/agents has the server"


@dataclass(frozen=True)
class Run:
    """A command that is run."""

    text: str
    more: str = ""  # options that make it short, behind those it has
    says: str = ""  # a regular expression for something in what it prints
    status: int = 0
    quick: bool = False


@dataclass(frozen=True)
class Excepted:
    """A command that is only parsed."""

    text: str
    why: Why


@dataclass(frozen=True)
class Execute:
    """A Python block that is executed, by its first line of code."""

    text: str
    before: str = ""  # what the page takes for granted
    after: str = ""
    says: str = ""


@dataclass(frozen=True)
class Compiled:
    """A Python block that is only compiled."""

    text: str
    why: str


Step = Run | Excepted | Execute | Compiled

_TIMED = (
    "--time-budget 0.1"  # with less, a busy machine leaves too few samples to tell its own delays from a forged clock
)
SHORT = f"--no-tune --no-profile --stop-at 0 {_TIMED}"
ONE = f"--trials 1 {SHORT}"
_MODEL = f"{ONE} --method evoengineer-free"
_HERE = "{openai}"  # the address of a scripted server

_SOFTMAX = """import torch
import warpsmith as ws

@ws.task(x=ws.normal("rows, cols"), workloads=[{"rows": 64, "cols": 512}], precision="fp32")
def softmax(x):
    return torch.softmax(x, dim=-1)
"""
_COPY = """
source = '''
extern "C" int launch(const float* x, float* out, int64_t rows, int64_t cols, void*, void*) {
  for (int64_t i = 0; i < rows * cols; ++i) out[i] = x[i];
  return 0;
}
'''
"""

TABLE: Mapping[str, tuple[Step, ...]] = {
    "README.md": (
        Excepted("pip install .", Why.INSTALLS),
        Run("warpsmith optimize rms_norm.py --trials 12 --run runs/rms_norm", more=ONE),
        Excepted("pip install '.[llm]'", Why.INSTALLS),
        Excepted("export OPENAI_API_KEY=...", Why.SHELL),
        Excepted("warpsmith optimize rms_norm.py --proposer openai:MODEL --cost 2", Why.MODEL),
        Run("warpsmith ask rms_norm.py --run runs/mine", more=f"{_TIMED} --stop-at 0", says=r"launch\("),
        Run("warpsmith tell runs/mine kernel.cpp", says="✓ ok"),
        Execute(
            "import torch",  # at the sizes of the page, which the walk makes smaller, and then at those of the walk
            after="op(torch.randn(64, 512), torch.randn(512))\nprint(op.stats())",
            says="(?s)kernel_calls=0, fallbacks=1.*kernel_calls=1, fallbacks=1",
        ),
    ),
    "docs/agents.md": (
        Excepted("claude mcp add warpsmith -- warpsmith mcp --folder .", Why.AGENT),
        Excepted('codex mcp add warpsmith -- warpsmith mcp --folder "$PWD"', Why.AGENT),
        Run("warpsmith agent-guide", says="name: warpsmith"),
        Excepted("warpsmith mcp --folder . --http --port 8321", Why.AGENT),
        Run("warpsmith ask softmax.py --run runs/mine", more=f"{_TIMED} --stop-at 0", says=r"launch\("),
        Run("warpsmith tell runs/mine kernel.cpp", says="✓ ok"),
        Run("warpsmith ask runs/mine", says=r"Brief 2"),
        Run("warpsmith ask runs/mine --json", says=r'"brief": 2, "operator": "init"'),
        Run("warpsmith tell runs/mine faster.cpp --json", says=r'"trial": 2.*"outcome": "judged".*"status": "ok"'),
        Run("warpsmith tell runs/mine third.cpp --later", says="trial 3 is kept"),
        Run("warpsmith step runs/mine", says=r"[12] verdicts? reached"),  # two where it would be the best
        Run("warpsmith ask runs/mine", says="Brief"),
        Run(
            "warpsmith optimize softmax.py --method evoengineer-free --proposer 'command:python my_agent.py' "
            "--trials 4 --run runs/agent",
            more=SHORT,
            says="the command 'python my_agent.py'",
        ),
        Run(
            "warpsmith optimize softmax.py --method agentic --proposer 'agent:python $WARPSMITH_FROM/step_agent.py' "
            "--trials 4 --run runs/steps",
            more=SHORT,
            says="Method: Agentic",
        ),
        Excepted(
            "warpsmith optimize softmax.py --method agentic --proposer agent:openai:MODEL --step-trials 6 --cost 2",
            Why.MODEL,
        ),
        Excepted(
            'export CLAUDE_CONFIG_DIR="$HOME/.claude-warpsmith" WARPSMITH_AGENT_WRITES="$HOME/.claude-warpsmith" '
            "MCP_TOOL_TIMEOUT=1800000",
            Why.SHELL,
        ),
        Excepted(
            "warpsmith optimize softmax.py --method agentic --proposer 'agent:claude -p --mcp-config .mcp.json "
            '--strict-mcp-config --permission-mode acceptEdits --allowedTools "mcp__warpsmith,Read,Edit,Write,Glob,'
            "Grep\" --max-turns 60'",
            Why.AGENT,
        ),
        Excepted('export WARPSMITH_AGENT_WRITES="$HOME/.codex"', Why.SHELL),
        Excepted(
            "warpsmith optimize softmax.py --method agentic --proposer 'agent:codex exec --skip-git-repo-check "
            "--sandbox danger-full-access --color never -'",
            Why.AGENT,
        ),
        Execute("from pathlib import Path", says="pending"),
        Execute("from pathlib import Path", says="ok"),
    ),
    "docs/architecture.md": (),
    "docs/benchmarks.md": (
        Run(
            "warpsmith bench relu@small softmax@small --methods cupilot,evoengineer-free --trials 8 "
            "--out benches/first",
            more=f"--no-verify {ONE}",
        ),
        Excepted(
            "warpsmith bench warpsmith-100 --methods cupilot,evoengineer-full,eoh --trials 45 --repeats 3", Why.WHOLE
        ),
        Excepted("warpsmith bench softmax 'cumsum*' --methods cupilot,cupilot-no-roofline --trials 20", Why.WHOLE),
        Excepted("warpsmith bench warpsmith-fused --proposers template,openai:MODEL --devices cuda:0,cuda:1", Why.GPU),
        Excepted("warpsmith bench kernelbench:PATH/level1 --trials 10", Why.WHOLE),
        Run("warpsmith bench resume benches/first", says="4 of 4 cells"),
        Run("warpsmith bench show benches/first", says="evoengineer-free"),
        Run("warpsmith bench show benches/first --format markdown", says=r"\| cupilot"),
        Run("warpsmith bench show benches/first --format latex --part speed", says=r"\\begin\{tabular\}"),
        Run("warpsmith bench show benches/first --format csv", says="cupilot,"),
        Run("warpsmith bench show benches/first --format json", says='"summaries"'),
        Run("warpsmith report benches/first", says="benches/first/report.html"),
        Run("warpsmith bench compare benches/first benches/second", says="cupilot"),
        Run(
            "warpsmith bench judge softmax.cpp --suite warpsmith-100@small --claims claims.csv --out judged",
            more=f"--no-verify {_TIMED}",
            says="softmax",
            status=1,  # nobody claims 1.4 of this kernel and is right
        ),
        Excepted("warpsmith bench judge softmax.cu 19_ReLU.py --suite warpsmith-100", Why.GPU),
        Excepted("warpsmith bench judge theirs --suite warpsmith-100@small --entries calls.csv --out judged", Why.GPU),
    ),
    "docs/contract.md": (
        Run(
            "warpsmith evaluate softmax.py softmax_extension.cpp --entry 'softmax_forward(x, 1)'",
            more=_TIMED,
            says="✓ ok",
        ),
        Run("warpsmith evaluate kernelbench/level1/23_Softmax.py model_new.py --allow torch", more=_TIMED, says="✓ ok"),
        Excepted("warpsmith evaluate softmax.py softmax_triton.py", Why.GPU),
        Excepted("warpsmith evaluate softmax.py softmax_cuda.cu --entry 'softmax_out(out, x, rows, cols)'", Why.GPU),
    ),
    "docs/evaluator.md": (),
    "docs/methods.md": (
        Run("warpsmith optimize softmax.py", more=ONE, says="Method: cuPilot"),
        Run("warpsmith optimize softmax.py --method evoengineer-full", more=ONE, says="Method: EvoEngineer"),
        Run("warpsmith optimize softmax.py --method cupilot --no-roofline", more=ONE, says="Method: cuPilot"),
        Excepted(
            "warpsmith optimize softmax.py --method agentic --proposer agent:openai:MODEL --step-trials 6 "
            "--step-time 900",
            Why.MODEL,
        ),
        Run("warpsmith optimize softmax.py --method roofline_first.py", more=ONE, says="Method: Roofline first"),
    ),
    "docs/models.md": (
        Excepted("pip install 'warpsmith[llm]'", Why.INSTALLS),
        Excepted("export OPENAI_API_KEY=...", Why.SHELL),
        Run(
            "warpsmith optimize softmax.py --proposer openai:gpt-6.1-sol --trials 45 --cost 2",
            more=_MODEL,
            says=r"Proposer: openai:gpt-6\.1-sol",
            quick=True,
        ),
        Excepted("export ANTHROPIC_API_KEY=...", Why.SHELL),
        Run(
            "warpsmith optimize softmax.py --proposer anthropic:claude-sonnet-5-5 --trials 45 --cost 2",
            more=_MODEL,
            says="Proposer: anthropic:claude-sonnet-5-5",
        ),
        Excepted("vllm serve Qwen/Qwen2.5-Coder-32B-Instruct --port 8000", Why.SERVER),
        Run(
            "warpsmith optimize softmax.py --base-url http://localhost:8000/v1",
            more=f"{_MODEL} --base-url {_HERE}",
            says="the-only-one is what it serves",
        ),
        Run(
            "warpsmith optimize softmax.py --proposer openai:qwen2.5-coder:32b --base-url http://localhost:11434/v1",
            more=f"{_MODEL} --base-url {_HERE}",
            says=r"Proposer: openai:qwen2\.5-coder:32b",
        ),
        Run("warpsmith models check openai:gpt-6.1-sol", says="price unknown|list prices"),
        Run("chmod 600 keys.env", quick=True),
        Run(
            "warpsmith optimize softmax.py --proposer openai:gpt-6.1-sol --key-file keys.env",
            more=_MODEL,
            says="valid: 1 of 1",
        ),
        Run(
            "warpsmith optimize softmax.py --proposer openai:gpt-6.1-sol=2,anthropic:claude-sonnet-5-5=1",
            more=_MODEL,
            says=r"Proposer: openai:gpt-6\.1-sol, anthropic:claude-sonnet-5-5",
        ),
        Run(
            "warpsmith optimize softmax.py --proposer openai:gpt-6.1-sol,openai:gpt-5.4-mini --choice ucb",
            more=_MODEL,
            says=r"openai:gpt-5\.4-mini",
        ),
        Run(
            "warpsmith optimize softmax.py --proposer openai:gpt-6.1-sol --model translator=openai:gpt-5.4-mini",
            more=ONE,
            says=r"translator: openai:gpt-5\.4-mini",
        ),
        Run(
            "warpsmith optimize softmax.py --proposer openai:qwen2.5-coder:32b --prices prices.toml --tokens 500000 "
            "--cost 0.25 --time 1800",
            more=_MODEL,
            says=r"\$",
        ),
    ),
    "docs/optimize.md": (
        Run("warpsmith optimize softmax.py", more=ONE, says="No model is connected"),
        Excepted("warpsmith optimize softmax.py --proposer openai:MODEL", Why.MODEL),
        Run("warpsmith optimize softmax.py --method eoh --trials 20", more=f"--trials 2 {SHORT}"),
        Run("warpsmith optimize --resume last --trials 30", more="--trials 3 --no-tune --no-profile"),
        Run("warpsmith optimize warpsmith-100/relu@small --json", more=ONE, says='"status": "ok"'),
        Run("warpsmith runs", says="cupilot.*template"),
        Run("warpsmith show last", says="best: "),
        Run("warpsmith show last best", says=r"launch\("),
        Run("warpsmith show last 1 --only prompt", says="--- user"),
        Run("warpsmith tune softmax.py tunable.cpp --out tuned.cpp", more=_TIMED),
        Run("warpsmith pool list"),
        Run("warpsmith pool search softmax.py", says="softmax|vector"),
        Run("warpsmith pool add last"),
    ),
    "docs/profiling.md": (
        Run(
            "warpsmith profile softmax.py kernel.cpp --out softmax.svg",
            more=_TIMED,
            says="Bottleneck: a loop that is not vectorised",
        ),
    ),
    "docs/python.md": (
        Execute("import torch", says=r"launch\("),
        Compiled("def scaled(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:", "tests/test_api.py has it"),
        Compiled('options = ws.RunOptions(proposer="template", device="cpu", tune=False)', "tests/test_api.py has it"),
        Execute('source = """', before=_SOFTMAX, says="wrong"),
        Execute("evaluation = ws.evaluate(softmax, source)  # or a file", before=f"{_SOFTMAX}{_COPY}", says="wrong"),
    ),
    "docs/quickstart.md": (
        Excepted("make demo", Why.SETS_UP),
        Excepted(". .venv/bin/activate", Why.SHELL),
        Excepted("pip install .", Why.INSTALLS),
        Excepted("pip install '.[llm]'", Why.INSTALLS),
        Excepted("pip install '.[nvcc]'", Why.INSTALLS),
        Run("warpsmith doctor", says="Ready: kernels for cpu"),
        Run(
            "warpsmith optimize rms_norm.py --trials 8 --run runs/first",
            more=f"--trials 2 {SHORT}",
            says="(Next|  or): warpsmith verify rms_norm.py runs/first/best.cpp",
            quick=True,
        ),
        Run("warpsmith runs", says="runs/first +[-0-9]+ [:0-9]+ +rms_norm +cupilot +template", quick=True),
        Run("warpsmith show runs/first", says="best: ", quick=True),
        Run("warpsmith show runs/first best --only code", says=r'extern "C" int launch\(', quick=True),
        Run("warpsmith report runs/first", says="runs/first/report.html", quick=True),
        Run("warpsmith verify rms_norm.py runs/first/best.cpp", says="VERIFIED", status=-1),
        Execute("import torch", after="assert y.shape == (512, 1024)"),
    ),
    "docs/kernels.md": (
        Run("warpsmith kernels list --family scan", says=r"warpsmith-100/cumsum[\s\S]*5 kernels"),
        Run("warpsmith kernels show cumsum", says=r"warpsmith::scan<warpsmith::Plus"),
        Run("warpsmith kernels list --json", says='"task": "warpsmith-100/matmul"'),
        Execute(
            "from warpsmith import load",
            before="import torch\na, b = torch.randn(4, 5), torch.randn(5, 3)",
            after="assert torch.equal(c, a @ b)",
        ),
    ),
    "docs/dashboard.md": (
        Excepted("warpsmith dashboard", Why.SERVES),
        Excepted("warpsmith dashboard runs --port 0 --open", Why.SERVES),
        Run("warpsmith optimize rms_norm.py --trials 24 --dashboard", more=ONE, says="Dashboard: http://127.0.0.1:"),
        Run("warpsmith optimize rms_norm.py --trials 24 --log tensorboard", more=ONE),
        Excepted(
            "warpsmith optimize rms_norm.py --log mlflow:http://tracking.example:5000 --log wandb:kernels", Why.TRACKER
        ),
        Compiled("import warpsmith as ws", Why.TRACKER),
    ),
    "docs/reproduce.md": (
        Excepted("warpsmith models check openai:gpt-6.1-sol", Why.MODEL),
        Excepted(
            "warpsmith bench run --as-published evoengineer --proposers openai:gpt-6.1-sol --jobs 16 --out "
            "benches/evoengineer",
            Why.WHOLE,
        ),
        Excepted(
            "warpsmith bench run --as-published cupilot --proposers openai:gpt-6.1-sol --jobs 16 --out benches/cupilot",
            Why.WHOLE,
        ),
        Excepted(
            "warpsmith bench run softmax matmul conv2d --methods "
            "cupilot,cupilot-no-roofline,cupilot-no-retrieval,cupilot-no-alignment --proposers openai:gpt-6.1-sol "
            "--trials 45 --out benches/ablations",
            Why.WHOLE,
        ),
        Excepted("python -m benchmarks.model_server --model model.gguf --name local-model --port 8011", Why.SERVER),
        Excepted(
            "python -m benchmarks.methods_record run --model openai:local-model --out benches/methods --limit-s 1200",
            Why.WHOLE,
        ),
        Excepted(
            "python -m benchmarks.methods_summary benches/methods --out benches/methods-tables",
            Why.WHOLE,
        ),
    ),
    "docs/report.md": (Run("warpsmith report runs/first", says="runs/first/report.html"),),
    "docs/rewards.md": (
        Compiled("from datasets import Dataset", "it trains a model, and needs TRL and a GPU"),
        Run("python examples/rewards/score_replies.py", more="--task relu", says="relu +ok"),
    ),
    "docs/serve.md": (
        Excepted("pip install 'warpsmith[serve]'", Why.INSTALLS),
        Run("warpsmith serve token laptop", says="^wsk_"),
        Excepted("warpsmith serve --device cpu --port 8322", Why.SERVES),
        Excepted("export WARPSMITH_SERVER_TOKEN=wsk_1uJm4FfLgC2pA6pVg0mXqE3cKQb0sPpVtUeN5h7Wb2k", Why.SHELL),
        Excepted("warpsmith evaluate softmax@small kernel.cpp --engine http://127.0.0.1:8322", Why.SERVES),
        Excepted("warpsmith optimize softmax@small --engine http://127.0.0.1:8322 --trials 12", Why.SERVES),
        Compiled("from warpsmith import Client", "it asks a server; tests/server has one"),
    ),
    "docs/suites.md": (
        Run("warpsmith suite list", says=r"warpsmith-100 +100 tasks[\s\S]*warpsmith-fused +12 tasks", quick=True),
        Run("warpsmith suite list warpsmith-100 --family convolution --tag transposed", says="17 tasks", quick=True),
        Run("warpsmith suite list warpsmith-fused --json", says="swiglu", quick=True),
        Run("warpsmith contract warpsmith-100/relu", says=r"launch\(const float\*"),
        Run("warpsmith evaluate warpsmith-100/softmax@small kernel.cpp", more=_TIMED, says="✓ ok"),
        Run("warpsmith optimize warpsmith-fused/residual_rms_norm@small --trials 10", more=ONE),
        Excepted("warpsmith evaluate warpsmith-100/softmax kernel.cu", Why.GPU),
        Execute("import torch"),
    ),
    "docs/tasks.md": (
        Run("warpsmith evaluate --calibrate softmax.py", says="calibrated"),
        Run("warpsmith evaluate --calibrate row_sums.py", says="writes 1 everywhere in out would pass", status=1),
    ),
    "docs/trust.md": (),
    "docs/cluster.md": (
        Excepted("pip install 'warpsmith[ray]'", Why.INSTALLS),
        Excepted("warpsmith doctor --engine ray", Why.CLUSTER),
        Excepted("warpsmith optimize softmax.py --engine ray", Why.CLUSTER),
        Excepted("warpsmith bench warpsmith-100 --engine ray --trials 45", Why.CLUSTER),
    ),
    "docs/using.md": (
        Run("warpsmith optimize softmax.py --trials 8 --run runs/softmax", more=ONE, says="Stopped: "),
        Execute("from warpsmith import load", before="import torch\nx = torch.randn(1024, 1024)"),
        Execute(
            "op.covers(x.double())  # 'x is float64, but the kernel takes float32'",
            before="import torch\nfrom warpsmith import load\nop = load('runs/softmax')\nx = torch.randn(1024, 1024)",
            after="assert op.covers(x.double()) == 'x is float64, but the kernel takes float32'",
        ),
        Run("warpsmith export runs/softmax --verify --out best/softmax", says="best/softmax", status=-1),
        Run("warpsmith export kernel.cpp --task softmax.py --out best/mine", says="best/mine: softmax"),
        Compiled('op = load("best/linear_relu")', "it takes a model of the reader's own; tests/runtime has one"),
        Run("python examples/before_after.py runs/softmax", more="--rounds 3", says="The outputs agree"),
    ),
    "docs/verification.md": (
        Run(
            "warpsmith verify rms_norm.py runs/first/best.cpp --certificate best.json", says="measured again", status=-1
        ),
        Execute("from pathlib import Path", says="rms_norm (True|False)"),
    ),
}
"""A status of -1: 0 or 1, whichever a busy machine brings about; what is printed is checked in either case."""
