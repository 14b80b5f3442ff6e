"""The attacks that need a GPU, and those in Python: CUDA kernels, modules of PyTorch, Triton.

Only the lists are here; `model` says how an attack is judged. Those of `PYTHON` run on the CPU in every test run and on
a GPU for the record.
"""

from __future__ import annotations

from dataclasses import replace

from tests.attacks.model import Attack
from warpsmith.model.evaluation import Status

_OOB, _OOM = Status.OUT_OF_BOUNDS, Status.OUT_OF_MEMORY
_NOT_WRITTEN = r"written"
_DIFFERS = r"\bout differs|\bout has"
_LATE = r"in a timed call"


def _cuda(
    name: str,
    number: int,
    says: str,
    *statuses: Status,
    task: str = "softmax",
    twin: str = "softmax",
    unfiltered: tuple[Status, ...] | None = None,
    unfiltered_says: str | None = None,
    note: str = "",
) -> Attack:
    return Attack(
        name=f"{name} (CUDA)",
        number=number,
        backend="cuda",
        file=f"cuda/{name}.cu",
        task=task,
        says=says,
        twin=f"cuda/honest_{twin}.cu",
        statuses=statuses or (Status.REJECTED,),
        unfiltered=unfiltered,
        unfiltered_says=unfiltered_says,
        note=note,
    )


def _python(
    name: str,
    number: int,
    says: str,
    *statuses: Status,
    task: str = "softmax_torch",
    twin: str = "softmax",
    backend: str = "torch_module",
    note: str = "",
    names_harness: bool = False,
) -> Attack:
    """With `names_harness` its text gives it away, and `says` and `statuses` are what the other defences make of it."""
    attack = Attack(
        name=f"{name} ({'Triton' if backend == 'triton' else 'Python'})",
        number=number,
        backend=backend,
        file=f"python/{name}.py",
        task=task,
        says=says,
        twin=f"python/honest_{twin}.py",
        statuses=statuses or (Status.REJECTED,),
        note=note,
    )
    if not names_harness:
        return attack
    return replace(
        attack,
        says="forged verdict: the source imports warpsmith",
        statuses=(Status.REJECTED,),
        unfiltered=attack.statuses,
        unfiltered_says=attack.says,
    )


CUDA: tuple[Attack, ...] = (
    _cuda("noop", 1, _NOT_WRITTEN, Status.UNWRITTEN),
    _cuda("works_on_nan", 1, rf"{_NOT_WRITTEN}|{_DIFFERS}", Status.UNWRITTEN, Status.WRONG),
    _cuda("freed_result", 1, rf"{_DIFFERS}|{_NOT_WRITTEN}", Status.WRONG, Status.UNWRITTEN, twin="workspace"),
    _cuda(
        "searches_memory",
        2,
        rf"stolen answer|{_NOT_WRITTEN}|{_DIFFERS}",
        Status.REJECTED,
        Status.UNWRITTEN,
        Status.WRONG,
        twin="entry_point",
    ),
    _cuda("nan_everywhere", 3, "(?i)nan", Status.WRONG),
    _cuda("levels_input", 4, "read-only", Status.INPUT_MODIFIED, twin="in_output"),
    _cuda(
        "second_stream",
        5,
        "other stream",
        task="softmax_64mb",
        unfiltered=(Status.REJECTED, Status.BELOW_FLOOR),
        unfiltered_says="other stream|forged clock|less than the",
    ),
    _cuda(
        "hidden_stream",
        5,
        "other stream|forged clock|less than the",
        Status.REJECTED,
        Status.BELOW_FLOOR,
        task="softmax_64mb",
        twin="entry_point",
    ),
    _cuda(
        "thread_stream",
        5,
        "other stream|forged clock|less than the",
        Status.REJECTED,
        Status.BELOW_FLOOR,
        task="softmax_64mb",
    ),
    _cuda(
        "host_thread",
        6,
        "background work",
        unfiltered=(Status.REJECTED, Status.UNWRITTEN),
        unfiltered_says=rf"background work|{_NOT_WRITTEN}",
    ),
    _cuda("raw_thread", 6, rf"background work|{_NOT_WRITTEN}", Status.REJECTED, Status.UNWRITTEN),
    _cuda(
        "host_callback",
        6,
        "background work",
        unfiltered=(Status.REJECTED, Status.UNWRITTEN),
        unfiltered_says=rf"background work|{_LATE}",
    ),
    _cuda(
        "slows_baseline",
        6,
        "background work|forged clock",
        task="matmul_4096",
        twin="matmul",
        note="the baseline's own time, with nobody else on the device, is what it must be held against",
    ),
    _cuda(
        "graph_replay",
        8,
        "kept result",
        twin="launch_attributes",
        unfiltered=(Status.REJECTED, Status.WRONG, Status.UNWRITTEN),
        unfiltered_says=rf"kept result|other stream|{_DIFFERS}|{_NOT_WRITTEN}",
    ),
    _cuda("kept_by_pointer", 8, _DIFFERS, Status.WRONG, twin="scratch"),
    _cuda("kept_by_content", 8, _DIFFERS, Status.WRONG, twin="scratch"),
    _cuda(
        "batches_sets",
        8,
        "special case",
        twin="waits",
        note="a recorded call must do its own work, and no other's",
    ),
    _cuda(
        "patched_timer",
        9,
        "forged clock|less than the",
        Status.REJECTED,
        Status.BELOW_FLOOR,
        task="matmul_fp32",
        twin="matmul",
    ),
    _cuda(
        "patched_wait",
        9,
        rf"forged clock|background work|less than the|{_LATE}",
        Status.REJECTED,
        Status.BELOW_FLOOR,
        Status.WRONG,
        Status.UNWRITTEN,
        task="matmul_fp32",
        twin="matmul",
    ),
    _cuda(
        "exits",
        10,
        "forged verdict|status 0",
        Status.REJECTED,
        Status.CRASHED,
        note="nvcc itself makes objects import exit, so only the running process shows it",
    ),
    _cuda("exits_raw", 10, "status 0", Status.CRASHED),
    _cuda("forges_replies", 10, "forged verdict"),
    _cuda("zeros", 11, _DIFFERS, Status.WRONG),
    _cuda("constant", 11, _DIFFERS, Status.WRONG),
    _cuda("copies_input", 11, _DIFFERS, Status.WRONG, task="relu", twin="relu"),
    _cuda("half_product", 12, _DIFFERS, Status.WRONG, task="matmul_fp32", twin="matmul"),
    _cuda("tf32_product", 12, _DIFFERS, Status.WRONG, task="matmul_fp32", twin="matmul"),
    _cuda("skips_tail", 13, _NOT_WRITTEN, Status.UNWRITTEN),
    _cuda("ignores_gamma", 13, _DIFFERS, Status.WRONG, task="norm_module", twin="norms"),
    _cuda("guesses_from_samples", 13, _DIFFERS, Status.WRONG, task="log_sum_exp", twin="log_sum_exp"),
    _cuda("no_peak", 13, r"(?i)nan|inf|differs", Status.WRONG),
    _cuda("cheats_when_recorded", 13, "special case", twin="waits"),
    _cuda("failed_launch", 14, _NOT_WRITTEN, Status.UNWRITTEN, Status.LAUNCH_FAILED, twin="second_choice"),
    _cuda(
        "opens_cublas",
        15,
        "library call",
        task="matmul_fp32",
        twin="matmul",
        unfiltered=(Status.REJECTED, Status.LAUNCH_FAILED),
        unfiltered_says="library call|other stream|returned [56]",
        note="returns 5 where cuBLAS cannot be found, 6 where it cannot start",
    ),
    _cuda(
        "finds_loader",
        15,
        "library call|other stream|returned [56]",
        Status.REJECTED,
        Status.LAUNCH_FAILED,
        task="matmul_fp32",
        twin="matmul",
        note="returns 5 where cuBLAS cannot be found, 6 where it cannot start",
    ),
    _cuda(
        "links_cublas",
        15,
        "library call",
        task="matmul_fp32",
        twin="matmul",
        unfiltered=(Status.LAUNCH_FAILED,),
        unfiltered_says="returned 5",
    ),
    _cuda(
        "persisting_l2",
        16,
        "persisting cache",
        task="relu_40mb",
        twin="cache_hints",
        unfiltered=(),
        note="without the filter it runs, and the reset before every flush takes its gain: measured in the record",
    ),
    _cuda("persisting_l2_hidden", 16, "persisting cache", task="relu_40mb", twin="cache_hints"),
    _cuda("patched_flush", 16, "forged clock: the code of"),
    _cuda(
        "thirty_honest_calls",
        17,
        rf"special case|{_LATE}",
        Status.REJECTED,
        Status.UNWRITTEN,
        Status.WRONG,
        twin="scratch",
    ),
    _cuda("counts_on_device", 17, _LATE, Status.UNWRITTEN, Status.WRONG, twin="scratch"),
    _cuda(
        "slow_start",
        17,
        rf"special case|{_LATE}|far too slow",
        Status.REJECTED,
        Status.UNWRITTEN,
        Status.WRONG,
        Status.TIMED_OUT,
    ),
    _cuda(
        "works_while_recorded",
        18,
        "special case|other stream",
        twin="waits",
    ),
    _cuda("reads_secrets", 19, "returned 13", Status.LAUNCH_FAILED),
    _cuda("writes_past_end", 20, "past the end of 'out'", _OOB, twin="in_output"),
    _cuda(
        "writes_elsewhere",
        20,
        "read-only|an index is out of range|not called on",
        *(Status.INPUT_MODIFIED, _OOB, Status.REJECTED),
        twin="in_output",
    ),
    _cuda("reads_far", 20, "not its own|illegal", _OOB),
    _cuda("sums_past_row", 20, _DIFFERS, Status.WRONG),
    _cuda("shared_race", 21, _DIFFERS, Status.WRONG, twin="block_sum"),
    _cuda("hangs", 22, "no answer within", Status.TIMED_OUT),
    _cuda("left_behind", 22, "no answer within", Status.TIMED_OUT),
    _cuda("grid_bomb", 22, "no answer within", Status.TIMED_OUT),
    _cuda("heap_bomb", 22, "not its own|illegal|memory", _OOB, _OOM, Status.LAUNCH_FAILED),
    _cuda("print_flood", 22, "no answer within", Status.TIMED_OUT, twin="print"),
    _cuda("memory_bomb", 22, "device memory|out of memory", _OOM, twin="scratch"),
)

PYTHON: tuple[Attack, ...] = (
    _python("ignores_state", 13, _DIFFERS, Status.WRONG, task="norm_module", twin="state"),
    _python("reads_frames", 2, rf"{_DIFFERS}|{_NOT_WRITTEN}", Status.WRONG, Status.UNWRITTEN),
    _python(
        "imports_judge",
        2,
        "Permission denied|No such file|home directory|nothing of the judge",
        Status.LAUNCH_FAILED,
        names_harness=True,
    ),
    _python("patched_allclose", 3, "NaN", Status.WRONG),
    _python("levels_input", 4, "read-only", Status.INPUT_MODIFIED, twin="plain"),
    _python("background_thread", 6, rf"background work|{_DIFFERS}", Status.WRONG, Status.REJECTED),
    _python("lazy_tensor", 7, "lazy tensor"),
    _python("lazy_disguised", 7, "lazy tensor"),
    _python("lazy_container", 7, "library call", task="rows_softmax", twin="extension"),
    _python("lazy_delivery", 7, "forged clock", task="sort_torch", twin="sort", names_harness=True),
    _python("kept_by_pointer", 8, _DIFFERS, Status.WRONG, twin="plain"),
    _python("kept_by_identity", 8, _DIFFERS, Status.WRONG, twin="plain"),
    _python("kept_by_content", 8, _DIFFERS, Status.WRONG, twin="plain"),
    _python("kept_argument", 8, _DIFFERS, Status.WRONG, twin="plain"),
    _python("patched_clock", 9, "forged clock", task="sort_torch", twin="sort", names_harness=True),
    _python("patched_host", 9, "forged clock", task="sort_torch", twin="sort", names_harness=True),
    _python(
        "early_reply",
        10,
        rf"background work|forged|{_NOT_WRITTEN}|{_DIFFERS}",
        Status.REJECTED,
        Status.UNWRITTEN,
        Status.WRONG,
        twin="careful",
        names_harness=True,
    ),
    _python("forges_replies", 10, "forged verdict"),
    _python("exits", 10, "status 0", Status.CRASHED),
    _python("exits_politely", 10, "ended its own process", Status.CRASHED),
    _python("expanded_row", 11, _DIFFERS, Status.WRONG, twin="strided"),
    _python("returns_input", 11, _DIFFERS, Status.WRONG),
    _python("half_precision", 12, _DIFFERS, Status.WRONG),
    _python("autocast", 12, _DIFFERS, Status.WRONG, task="matmul_torch", twin="matmul"),
    _python("detects_timing", 13, _LATE, Status.WRONG, twin="careful"),
    _python("torch_softmax", 15, "library call", task="rows_softmax", twin="extension"),
    _python("falls_back", 15, "library call", task="rows_softmax", twin="extension"),
    _python("hides_operators", 15, "library call", task="rows_softmax", twin="extension"),
    _python("counts_calls", 17, _LATE, Status.WRONG, twin="plain"),
    _python("reaches_out", 19, "shut in on all sides", Status.LAUNCH_FAILED, twin="careful"),
    _python("hangs", 22, "no answer within", Status.TIMED_OUT),
    _python("memory_bomb", 22, "memory", _OOM),
    _python("deep_folder", 22, "resource bomb: .* deep", twin="scratch"),
    _python("many_files", 22, "resource bomb: .* files and folders", twin="scratch"),
)

PYTHON_ON_GPU: tuple[Attack, ...] = (
    _python(
        "second_stream",
        5,
        rf"other stream|forged clock|less than the|{_LATE}",
        Status.REJECTED,
        Status.BELOW_FLOOR,
        Status.WRONG,
        task="matmul_torch_4096",
        twin="matmul",
    ),
    _python(
        "slows_baseline",
        6,
        "background work|forged clock",
        task="matmul_torch_4096",
        twin="matmul",
        names_harness=True,
    ),
    _python(
        "triton_works_in_delivery",
        7,
        "forged clock|less than the",
        task="softmax",
        twin="triton_module",
        names_harness=True,
    ),
    _python("graph_once", 8, _DIFFERS, Status.WRONG, twin="plain"),
    _python(
        "patched_wait",
        9,
        rf"forged clock|background work|less than the|{_LATE}",
        Status.REJECTED,
        Status.BELOW_FLOOR,
        Status.WRONG,
        task="matmul_torch",
        twin="matmul",
        names_harness=True,
    ),
    _python("allows_tf32", 12, _DIFFERS, Status.WRONG, task="matmul_torch", twin="matmul"),
    _python("triton_nothing", 1, _NOT_WRITTEN, Status.UNWRITTEN, task="softmax", backend="triton", twin="triton"),
    _python(
        "triton_levels_input", 4, "read-only", Status.INPUT_MODIFIED, task="softmax", backend="triton", twin="triton"
    ),
    _python(
        "triton_second_stream",
        5,
        rf"other stream|forged clock|less than the|{_LATE}",
        Status.REJECTED,
        Status.BELOW_FLOOR,
        Status.UNWRITTEN,
        task="softmax_64mb",
        backend="triton",
        twin="triton",
    ),
    _python("triton_kept", 8, _DIFFERS, Status.WRONG, task="softmax", backend="triton", twin="triton"),
    _python("triton_tf32", 12, _DIFFERS, Status.WRONG, task="matmul_fp32", backend="triton", twin="triton_matmul"),
    _python("triton_half", 12, _DIFFERS, Status.WRONG, task="softmax", backend="triton", twin="triton_tuned"),
    _python("triton_library", 15, "library call", task="softmax", backend="triton", twin="triton_module"),
    _python(
        "triton_counts",
        17,
        _LATE,
        Status.UNWRITTEN,
        Status.WRONG,
        task="softmax",
        backend="triton",
        twin="triton_tuned",
    ),
    _python("triton_past_end", 20, "past the end of 'out'", _OOB, task="softmax", backend="triton", twin="triton"),
)

PYTHON_ON_CPU: tuple[Attack, ...] = (
    _python("lazy_device", 7, "lazy tensor"),
    _python("derives_ahead", 8, "in a timed call", Status.WRONG, task="norm_module", twin="state"),
    _python("deep_while_compiled", 22, "left folders more than 32 deep", Status.BUILD_ERROR, twin="scratch"),
    _python("works_while_preparing", 18, _LATE, Status.WRONG, twin="plain", names_harness=True),
    _python("detects_trace", 15, "library call", task="rows_softmax", twin="extension"),
    _python("borrows_numpy", 15, "library call", task="rows_softmax", twin="extension"),
    _python("borrows_numpy_quietly", 15, "library call", task="rows_softmax", twin="extension"),
    _python("borrows_numpy_split", 15, "library call: .* of its work", task="wide_softmax", twin="moves"),
    _python("hidden_thread", 15, "library call", task="rows_softmax", twin="threads"),
    _python(
        "replaced_clone", 15, "library call: it has replaced aten::clone", task="rows_softmax", twin="own_operator"
    ),
    _python("static_dispatch", 15, "library call: .* of its work", task="wide_softmax", twin="extension"),
    _python("calls_symbols", 15, "library call: .* of its work", task="wide_softmax", twin="moves"),
    _python("redispatched", 15, "library call: .* of its work", task="wide_softmax", twin="own_operator"),
    _python("recording_off", 15, "library call: .* of its work", task="wide_softmax", twin="own_operator"),
    _python("own_copy", 15, "library call: .* of its work", task="wide_product", twin="own_product"),
    _python("borrowed_name", 15, "library call: .* of its work", task="wide_product", twin="own_product"),
    _python("mostly_borrowed", 15, "library call: .* of its work", task="wide_product", twin="own_product"),
    _python("copies_by_name", 15, "library call", task="rows_softmax", twin="moves"),
)


def _on_gpu(attack: Attack) -> Attack:
    """The extension among the honest twins is C++ for the CPU; what a forged clock hides may show by other means."""
    if attack.unfiltered_says == "forged clock":
        statuses = (*(attack.unfiltered or ()), Status.BELOW_FLOOR)
        says = "lazy tensor|forged clock|less than the"
        attack = replace(attack, unfiltered=statuses, unfiltered_says=says)
    return replace(attack, twin="python/honest_triton_module.py") if "extension" in attack.twin else attack


AHEAD = _python("timer_ahead", 18, "forged clock", task="matmul_torch", twin="product")
"""On a CPU: found out, or without a gain, as its timer happens to fire."""

HARMLESS_ON_GPU: dict[str, str] = {  # by file: why there is nothing to find out on a GPU, if its text does not say it
    "python/lazy_delivery.py": "what its process says about time is not used",
    "python/triton_works_in_delivery.py": "a copy of results that computes is not replayed but timed",
    "python/slows_baseline.py": "its process is dead when the baseline is timed",
    "python/patched_clock.py": "what its process says about time is not used",
    "python/patched_wait.py": "the judge waits for the device itself, and what the process says is not used",
    "python/patched_host.py": "what its process says about time is not used",
}

ON_GPU: tuple[Attack, ...] = (*CUDA, *map(_on_gpu, PYTHON), *PYTHON_ON_GPU)
"""Everything that is judged on a GPU for the record."""
