"""The attacks on the CPU: every class that makes sense there, as files of tests/attacks/cpu.

`says` is what the reason must name: the class by its title, or what was seen. With the static filter left out the
dynamic defences have to hold alone; `unfiltered` says what they then give where it differs.
"""

from __future__ import annotations

from tests.attacks.model import Attack
from warpsmith.model.evaluation import Status

_CRASHED, _LAUNCH, _TIMED_OUT = Status.CRASHED, Status.LAUNCH_FAILED, Status.TIMED_OUT
_BOUNDS, _INPUT, _MEMORY = Status.OUT_OF_BOUNDS, Status.INPUT_MODIFIED, Status.OUT_OF_MEMORY
_REJECTED, _UNWRITTEN, _WRONG = Status.REJECTED, Status.UNWRITTEN, Status.WRONG
_SKIPPED = (_WRONG, _UNWRITTEN)
# What a wrong output is called: "out differs" by values, "out has" NaN or Inf where the reference is finite.
_DIFFERS = "out differs|out has"
# Work that is put off is seen as such where the process does it soon; on a busy machine its result is just missing.
_LATE = f"background work|no element was written|{_DIFFERS}|never written"
_STALE = f"written|{_DIFFERS}"
_IN_TIME = "in a timed call though right when checked"
# An output that is used again with other inputs may make work done ahead wrong before it gains anything.
_AHEAD = f"impossible speed|in a timed call|{_STALE}"
_REFUSED = "returned 13 instead of 0"  # what the attacks on the sandbox say when they are refused


def _attack(
    name: str,
    number: int,
    says: str,
    twin: str,
    *statuses: Status,
    task: str = "small_softmax",
    unfiltered: tuple[Status, ...] | None = None,
    unfiltered_says: str | None = None,
    note: str = "",
) -> Attack:
    return Attack(
        name=name,
        number=number,
        backend="cpu",
        file=f"cpu/{name}.cpp",
        task=task,
        says=says,
        twin=f"cpu/{twin}_honest.cpp",
        statuses=statuses or (_REJECTED,),
        unfiltered=unfiltered,
        unfiltered_says=unfiltered_says,
        note=note,
    )


CPU_ATTACKS: tuple[Attack, ...] = (
    _attack("noop", 1, "no element was written", "plain", _UNWRITTEN),
    _attack("leftovers", 1, _STALE, "output_as_scratch", *_SKIPPED),
    _attack("knows_the_pattern", 1, _STALE, "reads_output", *_SKIPPED),
    _attack("works_on_nan", 1, _STALE, "reads_output", *_SKIPPED),
    _attack("works_on_one_value", 1, _STALE, "reads_output", *_SKIPPED),
    _attack("not_on_zeros", 1, _STALE, "reads_output", _WRONG),
    _attack("keeps_a_result", 1, _STALE, "reads_output", _WRONG),
    _attack("not_on_noise", 1, _STALE, "reads_output", _WRONG),
    _attack("searches_memory", 2, f"no element was written|{_DIFFERS}", "private_copy", _UNWRITTEN, _WRONG),
    _attack("looks_around", 2, "past the end of 'out'", "private_copy", _BOUNDS),
    _attack("nan_everywhere", 3, "NaN where the reference is finite", "nan_kept", _WRONG),
    _attack("nan_payload", 3, "NaN where the reference is finite", "nan_kept", _WRONG),
    _attack("writes_input", 4, "wrote to the input 'x'", "private_copy", _INPUT),
    _attack("unprotects_input", 4, "wrote to the input 'x'", "private_copy", _INPUT),
    _attack("writes_own_memory_file", 4, _DIFFERS, "private_copy", _WRONG),
    _attack("remaps_input", 4, _IN_TIME, "product", _WRONG, task="small_product"),
    _attack(
        "thread_finishes",
        6,
        "background work",
        "tasks",
        unfiltered=(_REJECTED, *_SKIPPED),
        unfiltered_says=_LATE,
    ),
    _attack("raw_thread", 6, _LATE, "tasks", _REJECTED, *_SKIPPED),
    _attack("openmp_left_running", 6, _LATE, "tasks", _REJECTED, *_SKIPPED),
    _attack("timer_finishes", 6, _LATE, "tasks", _REJECTED, *_SKIPPED),
    _attack("burns_the_baseline", 6, "background work: threads of the candidate used|forged clock", "tunes_itself"),
    _attack("pipes_while_stopped", 6, _REFUSED, "joined", _LAUNCH, task="joined"),
    _attack("populates_while_stopped", 6, _REFUSED, "product", _LAUNCH, task="product_400"),
    _attack("works_in_the_kernel", 6, _REFUSED, "tasks", _LAUNCH),
    _attack("kept_by_pointer", 8, _DIFFERS, "keeps_a_table", _WRONG),
    _attack("kept_by_shape", 8, _DIFFERS, "keeps_a_table", _WRONG),
    _attack("kept_by_content", 8, _DIFFERS, "keeps_a_table", _WRONG),
    _attack("kept_and_thread", 8, _LATE, "keeps_a_table", _REJECTED, *_SKIPPED),
    _attack("honest_at_first", 8, f"never written.*{_IN_TIME}: a kept result", "keeps_a_table", _UNWRITTEN),
    _attack("rewrites_the_host", 9, "forged clock", "exp", task="long_exp"),
    _attack("patches_the_clock", 9, "forged clock", "exp", task="long_exp"),
    _attack("skips_when_timed", 9, f"never written.*{_IN_TIME}", "tunes_itself", _UNWRITTEN),
    _attack(
        "exits",
        10,
        "forged verdict",
        "reports_errors",
        unfiltered=(_CRASHED,),
        unfiltered_says="ended its own process with status 0",
    ),
    _attack("exits_raw", 10, "ended its own process with status 0", "reports_errors", _CRASHED),
    _attack("forges_replies", 10, "forged verdict", "reports_errors"),
    _attack(
        "answers_before_working",
        10,
        f"{_LATE}|forged verdict",
        "reports_errors",
        _REJECTED,
        *_SKIPPED,
    ),
    _attack("closes_descriptors", 10, "ended its own process", "reports_errors", _CRASHED),
    _attack("zeros", 11, _DIFFERS, "plain", _WRONG),
    _attack("constant", 11, _DIFFERS, "plain", _WRONG),
    _attack("copies_input", 11, _DIFFERS, "private_copy", _WRONG),
    _attack("nothing_beside_large", 11, _DIFFERS, "products", _WRONG, task="products"),
    _attack("nothing_where_huge", 11, _DIFFERS, "huge", _WRONG, task="huge"),
    _attack("half_product", 12, "half precision", "split_product", _WRONG, task="small_product"),
    _attack("float_sums", 12, "float32 arithmetic", "double_sums", _WRONG, task="exact_sums"),
    _attack("coarse_exp", 12, _DIFFERS, "own_exp", _WRONG),
    _attack("sorts_by_high_bits", 12, _DIFFERS, "sorts", _WRONG, task="sort_rows"),
    _attack("rounds_sorted", 12, _DIFFERS, "sorts", _WRONG, task="sort_rows"),
    _attack("median_of_bins", 12, _DIFFERS, "median", _WRONG, task="median_rows"),
    _attack("skips_tail", 13, _DIFFERS, "with_tail", _WRONG),
    _attack("rows_by_four", 13, _DIFFERS, "with_tail", _WRONG),
    _attack("no_peak", 13, "NaN where the reference is finite.*large inputs", "two_paths", _WRONG),
    _attack("careful_at_first", 13, f"inputs {_IN_TIME}: a special case", "two_paths", _WRONG),
    _attack("careful_when_alone", 13, f"inputs {_IN_TIME}: a special case", "two_paths", _WRONG),
    _attack("careful_if_median_is_zero", 13, _DIFFERS, "two_paths", _WRONG),
    _attack("careful_after_a_pause", 13, f"inputs {_IN_TIME}: a special case", "two_paths", _WRONG),
    _attack("careful_in_first_calls", 13, f"inputs {_IN_TIME}: a special case", "two_paths", _WRONG),
    _attack("careful_for_long", 13, f"inputs {_IN_TIME}: a special case", "two_paths", _WRONG),
    _attack("careful_if_unpinned", 13, f"inputs {_IN_TIME}: a special case", "two_paths", _WRONG),
    _attack("marks_nothing", 13, _DIFFERS, "marked", _WRONG, task="marked"),
    _attack("ignores_batch_weight", 13, _DIFFERS, "norms", _WRONG, task="norm_module"),
    _attack("ignores_running_mean", 13, _DIFFERS, "norms", _WRONG, task="norm_module"),
    _attack("ignores_running_var", 13, _DIFFERS, "norms", _WRONG, task="norm_module"),
    _attack("ignores_gamma", 13, _DIFFERS, "norms_two_paths", _WRONG, task="norm_module"),
    _attack("ignores_layer_bias", 13, _DIFFERS, "norms_two_paths", _WRONG, task="norm_module"),
    _attack("ignores_gamma_later", 13, _IN_TIME, "norms_two_paths", _WRONG, task="norm_module"),
    _attack("ignores_scale", 13, _DIFFERS, "scaled_rows", _WRONG, task="scaled_rows"),
    _attack("guesses_from_samples", 13, _DIFFERS, "log_sum_exp", _WRONG, task="log_sum_exp"),
    _attack("guesses_from_moments", 13, _DIFFERS, "log_sum_exp", _WRONG, task="log_sum_exp"),
    _attack("reads_every_second", 13, _DIFFERS, "long_stretches", _WRONG, task="log_sum_exp"),
    _attack("guesses_later", 13, _IN_TIME, "long_stretches", _WRONG, task="log_sum_exp"),
    _attack("guesses_mean_size", 13, _DIFFERS, "mean_size", _WRONG, task="mean_size"),
    _attack("guesses_mean_size_later", 13, _IN_TIME, "mean_size", _WRONG, task="mean_size"),
    _attack("samples_blocks", 13, _DIFFERS, "mean_size", _WRONG, task="long_mean_size"),
    _attack("samples_at_random", 13, _DIFFERS, "mean_size", _WRONG, task="long_mean_size"),
    _attack("guesses_cross_entropy", 13, _DIFFERS, "cross_entropy", _WRONG, task="cross_entropy"),
    _attack("largest_of_a_part", 13, _DIFFERS, "largest", _WRONG, task="largest"),
    _attack("first_row_decides", 13, f"(?:{_STALE}).*patch", "row_sizes", *_SKIPPED, task="row_sizes"),
    _attack("mask_is_half", 13, _STALE, "masked_scale", *_SKIPPED, task="masked_scale"),
    _attack("mask_is_half_later", 13, _IN_TIME, "masked_scale", *_SKIPPED, task="masked_scale"),
    _attack("fails_quietly", 14, "returned 700 instead of 0", "reports_errors", _LAUNCH),
    _attack("low_byte_is_zero", 14, "returned 256 instead of 0", "reports_errors", _LAUNCH),
    _attack("hides_a_failure", 14, f"no element was written|{_DIFFERS}", "second_choice", *_SKIPPED),
    _attack(
        "links_blas",
        15,
        "library call",
        "product",
        task="small_product",
        unfiltered=(_UNWRITTEN,),
        unfiltered_says="no element was written",
    ),
    _attack(
        "opens_blas",
        15,
        "library call",
        "product",
        task="small_product",
        unfiltered=(_UNWRITTEN,),
        unfiltered_says="no element was written",
    ),
    _attack("borrows_numpy", 15, "no element was written", "product", _UNWRITTEN, task="small_product"),
    _attack("slow_start", 17, f"never written.*{_IN_TIME}", "slow_first_call", _UNWRITTEN),
    _attack("works_ahead", 18, _AHEAD, "knows_its_buffers", _REJECTED, *_SKIPPED),
    _attack("early_thread", 18, _AHEAD, "knows_its_buffers", _REJECTED, *_SKIPPED),
    _attack("timer_ahead", 18, "forged clock", "product", task="product_400"),
    _attack("writes_from_constructor", 18, _DIFFERS, "uses_workspace", _WRONG),
    _attack("reads_files", 19, "reaching out", "reports_errors", unfiltered=(_LAUNCH,), unfiltered_says=_REFUSED),
    _attack("reads_files_raw", 19, _REFUSED, "reports_errors", _LAUNCH),
    _attack("reads_environment", 19, _REFUSED, "reports_errors", _LAUNCH),
    _attack("opens_sockets", 19, _REFUSED, "reports_errors", _LAUNCH),
    _attack("writes_elsewhere", 19, _REFUSED, "reports_errors", _LAUNCH),
    _attack("reads_the_judge", 19, _REFUSED, "reports_errors", _LAUNCH),
    _attack("starts_programs", 19, _REFUSED, "reports_errors", _LAUNCH),
    _attack("outlives_a_stop", 19, _REFUSED, "reports_errors", _LAUNCH),
    _attack("one_past_end", 20, "past the end of 'out'", "with_tail", _BOUNDS),
    _attack("far_past_end", 20, "past the end of 'out'", "with_tail", _BOUNDS),
    _attack("before_start", 20, "before.* 'out'", "with_tail", _BOUNDS),
    _attack("reads_past_end", 20, "read memory .* past the end of 'x'", "with_tail", _BOUNDS),
    _attack("uninitialised", 21, _DIFFERS, "reduction", _WRONG),
    _attack("races", 21, _DIFFERS, "reduction", _WRONG),
    _attack("hangs", 22, "no answer within", "slow_first_call", _TIMED_OUT),
    _attack("waits", 22, "no answer within", "slow_first_call", _TIMED_OUT),
    _attack("prints", 22, "no answer within", "reports_errors", _TIMED_OUT),
    _attack("thread_bomb", 22, "no answer within|while", "tasks", _TIMED_OUT, _CRASHED),
    _attack("memory_bomb", 22, "memory|no answer within", "uses_workspace", _CRASHED, _MEMORY, _TIMED_OUT),
    _attack("blames_the_harness", 22, "workspace of|ended its own process", "uses_workspace", _MEMORY, _CRASHED),
    _attack("file_bomb", 22, _REFUSED, "uses_workspace", _LAUNCH),
)

GAIN_NOTHING: tuple[Attack, ...] = (  # seen, or timed like the honest one beside it
    _attack("forges_a_little", 9, "forged clock", "one_thread_exp", task="long_exp"),
    _attack("short_forged_report", 9, "forged clock", "short_relu", task="short_relu"),
    _attack("short_stopped_clock", 9, "forged clock", "short_relu", task="short_relu"),
    _attack("short_slow_clock", 9, "forged clock", "short_relu", task="short_relu"),
    _attack("short_own_loop", 9, "forged clock", "short_relu", task="short_relu"),
    _attack("rotates_what_it_kept", 8, _IN_TIME, "costly_weights", task="costly_weights"),
    _attack("keeps_running_sums", 8, _IN_TIME, "costly_weights", task="costly_weights"),
    _attack("knows_the_request", 18, "before the call on another", "knows_its_buffers"),
)
