"""The offline proposer offers the collection's kernel for the form of a task before any template."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.proposers.test_template import brief, exhibit, field
from tests.strategies.problems import make_problem
from warpsmith.backends.source import backend_named
from warpsmith.kernels.collection import SOURCES
from warpsmith.kernels.forms import form_kernel
from warpsmith.model.brief import Brief, Idea, Problem, Reply
from warpsmith.model.candidate import SourceFile
from warpsmith.model.errors import ProposerRefused
from warpsmith.model.evaluation import Status
from warpsmith.model.method import Move, Product
from warpsmith.model.task import Family, Operation, Outline, OutlineValue, Workload
from warpsmith.prompts.parser import parse
from warpsmith.proposers.templates import COLLECTED, TemplateProposer


def problem_of(operation: str, arguments: str, family: Family = Family.OTHER, arch: str = "sm_90a") -> Problem:
    problem = make_problem(arch=arch)
    matrix = OutlineValue("x", "float32", ("rows", "cols"))
    node = Operation(operation, arguments, "{}", (replace(matrix, name="%0"),))
    contract = backend_named("cuda").contract(problem.task)
    return replace(problem, contract=contract, outline=Outline(family, (matrix,), (node,), ("%0",)))


SCAN = problem_of("aten.cumsum.default", '[{"$": "x"}, 1]')  # no template fits
SOFTMAX = problem_of("aten._softmax.default", '[{"$": "x"}, -1, false]', Family.ROW_REDUCTION)  # a file, and templates


def source_of(problem: Problem) -> str:
    assert problem.outline is not None
    written = form_kernel(problem.task, problem.contract, problem.outline, problem.arch)
    assert written is not None
    return written.source


def propose(asked: Brief, **given: Any) -> Reply:
    proposer = TemplateProposer()
    full = replace(asked, **given)
    return proposer.propose(full, proposer.prompt(full))


def test_the_first_kernel_is_the_forms() -> None:
    reply = propose(brief(Move.INIT, problem=SCAN))

    assert field(reply, "strategy") == COLLECTED
    assert field(reply, "name") == "cumsum"
    assert source_of(SCAN).strip() in reply.text
    assert "// tune: TUNE_THREADS = " in reply.text
    assert TemplateProposer.supports(SCAN)


def test_the_reply_is_read_like_any_other() -> None:
    asked = brief(Move.INIT, problem=SCAN)

    read = parse(propose(asked), asked)

    assert read.candidate is not None
    assert read.candidate.main.text.strip() == source_of(SCAN).strip()


def test_without_a_template_the_search_ends_after_it() -> None:
    with pytest.raises(ProposerRefused, match="every plan of the catalogue"):
        propose(brief(Move.INIT, problem=SCAN, tried=(COLLECTED,)))
    failed = exhibit("f", COLLECTED, source_of(SCAN), Status.WRONG, "wrong")
    with pytest.raises(ProposerRefused, match="every plan of the catalogue"):
        propose(brief(Move.REPAIR, problem=SCAN), failure=failed)


def test_it_is_the_first_strategy_and_is_translated_to_the_same_kernel() -> None:
    asked = brief(Move.INIT, problem=SCAN)
    told = propose(asked, product=Product.STRATEGIES, wanted=6)
    assert told.text.count("strategy: ") == 1
    assert field(told, "strategy") == COLLECTED

    written = propose(brief(Move.TRANSLATE, problem=SCAN), idea=Idea(1, COLLECTED))
    assert source_of(SCAN).strip() in written.text
    aligned = propose(
        brief(Move.ALIGN, problem=SCAN),
        product=Product.ALIGNMENT,
        subject=replace(exhibit("k", "other"), files=(SourceFile("kernel.cu", source_of(SCAN)),)),
    )
    assert field(aligned, "strategy") == COLLECTED


def test_a_task_with_the_operations_of_a_suites_task_begins_with_the_file_of_that_task() -> None:
    long_rows = (Workload("long", (("rows", 64), ("cols", 100_000))),)
    reply = propose(brief(Move.INIT, problem=replace(SOFTMAX, task=replace(SOFTMAX.task, workloads=long_rows))))

    assert (field(reply, "strategy"), field(reply, "name")) == (COLLECTED, "as warpsmith-100/softmax")
    assert (SOURCES / "softmax.cu").read_text(encoding="utf-8").strip() in reply.text


def test_a_chain_of_operations_begins_with_a_kernel_in_parts() -> None:
    """Running sums of rows, then a softmax of them: two forms."""
    assert SCAN.outline is not None
    (scan,) = SCAN.outline.nodes
    softmax = Operation(
        "aten._softmax.default", '[{"$": "%0"}, -1, false]', "{}", (replace(scan.results[0], name="%1"),)
    )
    chain = replace(SCAN, outline=replace(SCAN.outline, nodes=(scan, softmax), outputs=("%1",)))

    reply = propose(brief(Move.INIT, problem=chain))

    assert field(reply, "strategy") == COLLECTED
    assert field(reply, "name").startswith("in parts: cumsum; ")
    sort = Operation("aten.sort.default", '[{"$": "%0"}]', "{}", (replace(scan.results[0], name="%1"),))
    unknown = replace(SCAN, outline=replace(SCAN.outline, nodes=(scan, sort), outputs=("%1",)))
    with pytest.raises(ProposerRefused, match=r"neither a form nor a template is for aten\.sort in the fp32 class"):
        propose(brief(Move.INIT, problem=unknown))


def test_where_no_form_fits_the_templates_stay() -> None:
    assert field(propose(brief(Move.INIT, problem=replace(SOFTMAX, arch="sm_80"))), "strategy") != COLLECTED
    with pytest.raises(ProposerRefused, match="no template fits"):
        propose(brief(Move.INIT, problem=replace(SCAN, arch="sm_80")))
    with pytest.raises(ProposerRefused, match="no template fits"):
        propose(brief(Move.INIT, problem=replace(SCAN, backend="triton")))
