"""The classes of attack on an evaluator, with the numbers used everywhere in the project.

The short title begins the reason of every rejection of that class. The table of docs/trust.md is made from this list
and from the attacks in tests/attacks.
"""

from __future__ import annotations

from dataclasses import dataclass

from warpsmith.model.evaluation import Status
from warpsmith.model.evidence import Objection


@dataclass(frozen=True)
class AttackClass:
    """One way to seem fast or right without being it."""

    number: int
    title: str  # a noun, as a reason begins with it
    attack: str  # what the candidate does
    defence: str  # what stops it
    not_covered: str  # what remains, honestly


CLASSES: tuple[AttackClass, ...] = (
    AttackClass(
        1,
        "stale output",
        "does nothing and hopes that the output buffer still holds a right result, or tells the judge's buffers by "
        "what they hold",
        "the judge owns the outputs and fills them with a random pattern before every call, timed ones included: NaN "
        "or an ordinary number; in up to four checked calls the outputs are like memory of a user: the result of an "
        "earlier call, displaced numbers of a right result, zeros, random bits",
        "an output whose right value happens to be the pattern everywhere; a kernel that knows the judge by something "
        "else than its outputs, such as addresses",
    ),
    AttackClass(
        2,
        "stolen answer",
        "looks for the expected result in memory",
        "reference and expected values exist only in the judge's process; a host maps inputs and outputs alone",
        "a driver that hands memory of one process to another without clearing it",
    ),
    AttackClass(
        3,
        "subverted checker",
        "returns NaN, or patches the comparison",
        "the comparison runs in the judge; any NaN or infinity that the reference does not have fails",
        "",
    ),
    AttackClass(
        4,
        "changed input",
        "overwrites an input so that the check compares with changed data",
        "CPU: inputs lie in a file of their own that a host can only read; CUDA: a secret checksum over all inputs and "
        "zones",
        "CUDA: an input that is changed and restored within one call",
    ),
    AttackClass(
        5,
        "other stream",
        "does the work on a stream that is not timed",
        "no stream can be made (imports, trace); the device is synchronised before the clock stops; the judge's clock",
        "",
    ),
    AttackClass(
        6,
        "background work",
        "returns early and lets a thread finish the work",
        "the process is stopped as it answers and goes on with the next request only, so that it runs under the "
        "judge's clock or not at all; the clock runs until every thread stands still, also those inside the kernel; "
        "outputs are captured meanwhile; no thread can be imported, and on a GPU none may be added",
        "what threads that were made without any library do until the stop takes effect: up to 0.5 ms per sample",
    ),
    AttackClass(
        7,
        "lazy tensor",
        "returns a tensor or a container that computes when it is looked at",
        "tensors are taken from what is returned within the call, and copied into the judge's raw buffers after an "
        "exact type check; CPU: the judge's clock includes the copies; GPU: what is replayed once the clock "
        "has stopped may only be one copy per result",
        "",
    ),
    AttackClass(
        8,
        "kept result",
        "remembers a result by pointer, shape or content and returns it again",
        "fresh data from the operating system's entropy and changing addresses for every timed call, all digits of it "
        "on a CPU, too; new weights only after the last request that no clock covers: sums of old ones with fresh "
        "signs; all checked",
        "something derived from state that is only rotated for timed calls (of one sign, of whole numbers, with a "
        "structure, fewer than 16), from the mean and the deviation of weights, or from state that the module itself "
        "writes to",
    ),
    AttackClass(
        9,
        "forged clock",
        "makes its own process measure less time",
        "no result is computed from what the host says about time. CPU: the judge's clock around a request counts, "
        "less what a request costs that calls nothing; a report that the processor time of the host contradicts is "
        "rejected, and threads beyond those that PyTorch may use gain nothing; GPU: calls are timed by another process "
        "once the candidate's is dead, or by the judge's clock, one at a time; both: code of others that is changed in "
        "its process is seen from outside, as root",
        "CPU: the interpreter stays in the process of a native candidate, which can reach and change it, and gains "
        "nothing by that: no time is taken from it, and calls are made without it; for a Python module whose work is "
        "as short as copying its results, to do it in place of the copying; "
        "GPU: kernels that find and overwrite what the driver keeps about timers in the replaying process's own device "
        "memory; for what is timed from outside and returns tensors, the time it takes to copy them",
    ),
    AttackClass(
        10,
        "forged verdict",
        "writes to the result channel, ends its process early, forges replies",
        "the verdict is made in the judge; replies carry a secret number, are bounded JSON, and prove nothing",
        "an answer before the work, where a busy machine does the work before the judge gets a processor: the judge's "
        "clock has run until then",
    ),
    AttackClass(
        11,
        "loose tolerance",
        "writes zeros, constants or a copy of an input where the tolerance lets them pass",
        "errors are relative to the output's scale, that of one call for results of timed calls; evaluations of a task "
        "on which such results pass say so, and runs and benches refuse it (calibration)",
        "results of timed calls that are up to 32 times smaller than others of their sample: their error is relative "
        "to all of these, and up to five bits may be lost",
    ),
    AttackClass(
        12,
        "lower precision",
        "computes in a coarser precision than the task's class",
        "the error against fp64 may be a small multiple of PyTorch's own in the same class; where the reference only "
        "chooses and moves elements (sort, top-k, median, maximum, ReLU) no digit may be lost",
        "a coarser step that stays below that limit on every input tried, such as products of whole numbers of 8 bits "
        "for bf16 data that are all about as large; in bf16 and fp16, a long sum over a part of "
        "its terms by a kernel that looks at all of them and adds up all of them where one is unusual",
    ),
    AttackClass(
        13,
        "special case",
        "is right only for the visible shapes, values or calls",
        "several distributions and seeds, structural cases; timed calls meet them too, at moments nobody can foresee: "
        "in random calls of a request, before, between and after the requests that count, where neither the data that "
        "is not hidden, nor the time before a call, nor the processors of threads, nor a stop tells them from others; "
        "constant inputs and state (a new module's weights of 1 and biases of 0) are drawn at random in checked and "
        "timed calls, and a task on which an input can be ignored is not calibrated; a result cannot be guessed "
        "from the distribution: inputs of timed calls are moved and scaled at random, some differ from usual data in "
        "one short stretch, one value or a few rows only, declared masks have other densities, and limits of long "
        "sums and losses follow from the measured error of honest orders; held-out shapes, seeds and distributions, "
        "some with usual moments, for winners",
        "a shape or a value nobody tried: where inputs seem to lie between two bounds, larger ones are not tried; "
        "whole numbers, and masks of a module, that are the same in every draw; an unusual part that a kernel finds "
        "in most draws, by reading a large share of the data (statistics of a quarter of a batch passed at times, in "
        "bf16); a comparison of computed numbers that are exactly equal, in an element of 16: rounding may decide it; "
        "a kernel that fails on one variant alone, is careful while it is checked, and has one set of buffers (large "
        "tasks), since each unusual sample then tries one variant; on a device without the memory for a reference "
        "beside all buffers, whoever is careful in checked calls only",
    ),
    AttackClass(
        14,
        "failed launch",
        "launches a kernel that cannot start, and garbage stays",
        "launch and device errors are read after every call; outputs are filled with a pattern",
        "",
    ),
    AttackClass(
        15,
        "library call",
        "calls a library, openly or as a fallback, instead of computing",
        "the built object's imports are allow-listed; CPU: no library can be opened once the process is set up; traced "
        "kernel and operator names, of all threads, and a traced call gives the same bits as others; Python on the "
        "CPU: looks from outside, as root, at which file's code the stopped process executes, where only extensions "
        "whose imports were checked are the candidate's own; operators of PyTorch must not be replaced",
        "a library's kernel copied into the candidate's own source, or into the memory of its extension; Python: a "
        "library that takes less than a tenth of the time of a call, or 0.2 ms beside much work of its own; a call "
        "that notices the trace and then computes the same bits by itself; Python on the CPU where the judge is not "
        "root: functions of libraries that are loaded anyway, called by their address",
    ),
    AttackClass(
        16,
        "persisting cache",
        "reserves a part of the L2 cache that survives the flush",
        "the calls that do it are refused; the reservation and its limit are reset before every flush",
        "",
    ),
    AttackClass(
        17,
        "few samples",
        "is slow at first so that few samples are taken, or behaves until it has been seen",
        "a fixed minimum of samples; every timed result is checked; calls that wait are refused",
        "",
    ),
    AttackClass(
        18,
        "impossible speed",
        "is faster than the hardware can be",
        "hard reject below what memory and arithmetic need at measured peaks; every sample leaves some sets of buffers "
        "out, which must stay untouched, so that no call does the work of others; CPU: the process is stopped in the "
        "middle of samples that do not count, and then no call may have begun before the one before it has ended",
        "work skipped by less than the distance to that floor, if the result is right; calls recorded into a CUDA "
        "graph are the same in every sample; CPU: a native candidate that reads in the memory of its process which "
        "calls follow, computes several of them at once and keeps the results to itself until it is their turn",
    ),
    AttackClass(
        19,
        "reaching out",
        "reads files, the environment or the network, or writes where it should not",
        "sandbox: no network, Landlock, seccomp, another user, scrubbed environment; imports are allow-listed",
        "a machine without these layers; every result names the layers that were active",
    ),
    AttackClass(
        20,
        "out of bounds",
        "writes or reads outside its buffers",
        "CPU: guard pages; CUDA: red zones; sanitizers for winners",
        "reads out of bounds that do not change the result (CUDA; on the CPU just before a buffer, or by a kernel that "
        "handles its own faults, without importing what that needs) are found by "
        "verification only",
    ),
    AttackClass(
        21,
        "data race",
        "has a race or reads uninitialised memory, and is right by luck",
        "repeated runs must agree; racecheck, initcheck and synccheck for winners",
        "races in global memory that show in no run",
    ),
    AttackClass(
        22,
        "resource bomb",
        "hangs, forks, fills memory or disk, prints without end",
        "wall limits with SIGKILL of the process group, resource limits, bounded messages; a quota of files, depth and "
        "bytes for the scratch folder, which is removed without recursion and within a time limit",
        "host memory of a GPU candidate; what is written to the scratch folder between two looks at the quota",
    ),
)

BY_NUMBER = {each.number: each for each in CLASSES}


def title(number: int) -> str:
    """The short title of a class."""
    return BY_NUMBER[number].title


def rejection(number: int, text: str) -> Objection:
    """The objection to an attack of this class; the reason begins with the title of the class."""
    return Objection(Status.REJECTED, number, f"{title(number)}: {text}")
