"""The classes of attack on an evaluator, with the numbers used everywhere in the project.

The short title begins the reason of every rejection of that class. The sections of docs/trust.md are made from this
list and from the attacks in tests/attacks.
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
    defences: tuple[str, ...]  # what stops it
    limits: tuple[str, ...]  # what they do not cover


CLASSES: tuple[AttackClass, ...] = (
    AttackClass(
        1,
        "stale output",
        "Does nothing and hopes that the output buffer still holds a right result, or recognises the judge's buffers "
        "by what they hold.",
        (
            "The judge owns the outputs. Before every call, timed ones included, it fills them with a random pattern: "
            "NaN or an ordinary number.",
            "In up to four checked calls the outputs look like memory of a user: the result of an earlier call, "
            "displaced numbers of a right result, zeros, random bits.",
        ),
        (
            "An output whose right value happens to be the pattern everywhere.",
            "A kernel that recognises the judge by something else than its outputs, such as addresses.",
        ),
    ),
    AttackClass(
        2,
        "stolen answer",
        "Looks for the expected result in memory.",
        (
            "Reference and expected values exist only in the judge's process; the candidate's process maps inputs and "
            "outputs alone.",
        ),
        ("A driver that hands memory of one process to another without clearing it.",),
    ),
    AttackClass(
        3,
        "subverted checker",
        "Returns NaN, or patches the comparison.",
        ("The comparison runs in the judge.", "Any NaN or infinity that the reference does not have fails."),
        (),
    ),
    AttackClass(
        4,
        "changed input",
        "Overwrites an input so that the check compares with changed data.",
        (
            "CPU: inputs lie in a file of their own that the candidate's process can only read.",
            "CUDA: a secret checksum over all inputs and the zones around them.",
        ),
        ("CUDA: an input that is changed and restored within one call.",),
    ),
    AttackClass(
        5,
        "other stream",
        "Does the work on a stream that is not timed.",
        (
            "No stream can be made: such calls are refused among the imports and in the trace.",
            "The device is synchronised before the clock stops, and the clock is the judge's.",
        ),
        (),
    ),
    AttackClass(
        6,
        "background work",
        "Returns early and lets a thread finish the work.",
        (
            "The process is stopped as it answers and goes on with the next request only, so that it runs under the "
            "judge's clock or not at all.",
            "The clock runs until every thread stands still, also those inside the kernel; outputs are captured "
            "meanwhile.",
            "Functions that make threads cannot be imported, and on a GPU no thread may be added.",
        ),
        ("What threads that were made without any library do until the stop takes effect: up to 0.5 ms per sample.",),
    ),
    AttackClass(
        7,
        "lazy tensor",
        "Returns a tensor or a container that computes when it is looked at.",
        (
            "Tensors are taken from what is returned within the call, and copied into the judge's raw buffers after an "
            "exact type check.",
            "CPU: the judge's clock includes the copies.",
            "GPU: what is replayed once the clock has stopped may only be one copy for each result.",
        ),
        (),
    ),
    AttackClass(
        8,
        "kept result",
        "Remembers a result by pointer, shape or content and returns it again.",
        (
            "Every timed call has fresh data from the operating system's entropy and other addresses; on a CPU all "
            "digits are fresh. All results are checked.",
            "Weights change only after the last request that no clock covers: they are sums of old ones with fresh "
            "signs.",
        ),
        (
            "Something derived from state that is only rotated for timed calls: of one sign, of whole numbers, with a "
            "structure, or of fewer than 16 numbers.",
            "Something derived from the mean and the deviation of weights.",
            "Something derived from state that the module itself writes to.",
        ),
    ),
    AttackClass(
        9,
        "forged clock",
        "Makes its own process measure less time.",
        (
            "No result is computed from what the candidate's process says about time.",
            "CPU: the judge's clock around a request counts, less what a request costs that calls nothing.",
            "CPU: a report that the processor time of the process contradicts is rejected; threads beyond those that "
            "PyTorch may use gain nothing.",
            "GPU: calls are timed by another process once the candidate's is dead, or by the judge's clock, one at a "
            "time.",
            "Where the judge is root, code of others that is changed in the candidate's process is seen from outside.",
        ),
        (
            "CPU: the interpreter stays in the process of a native candidate, which can reach and change it. It gains "
            "nothing: no time is taken from it, and calls are made without it.",
            "CPU: a Python module whose work is as short as copying its results may do it in place of the copying.",
            "GPU: a kernel that finds and overwrites what the driver keeps about timers in the replaying process's own "
            "device memory.",
            "GPU: of what is timed from outside and returns tensors, the time it takes to copy them.",
        ),
    ),
    AttackClass(
        10,
        "forged verdict",
        "Writes to the result channel, ends its process early, forges replies.",
        (
            "The verdict is made in the judge.",
            "Replies carry a secret number, are JSON of bounded size, and prove nothing.",
        ),
        (
            "An answer before the work, where a busy machine does the work before the judge gets a processor: the "
            "judge's clock has run until then.",
        ),
    ),
    AttackClass(
        11,
        "loose tolerance",
        "Writes zeros, constants or a copy of an input where the tolerance lets them pass.",
        (
            "Errors are relative to the scale of the output; for results of timed calls, to the scale of that one "
            "call.",
            "Calibration tries such results on every task. Where one passes, evaluations say so, and runs and benches "
            "refuse the task.",
        ),
        (
            "Results of timed calls that are up to 32 times smaller than others of their sample: their error is "
            "relative to all of these, and up to five bits may be lost.",
        ),
    ),
    AttackClass(
        12,
        "lower precision",
        "Computes in a coarser precision than the task's class.",
        (
            "The error against fp64 may be a small multiple of PyTorch's own in the same class.",
            "Where the reference only chooses and moves elements (sort, top-k, median, maximum, ReLU) no digit may be "
            "lost.",
        ),
        (
            "A coarser step that stays below that limit on every input tried, such as products of whole numbers of 8 "
            "bits for bf16 data that are all about as large.",
            "bf16 and fp16: a long sum over a part of its terms, by a kernel that looks at all of them and adds up all "
            "where one is unusual.",
        ),
    ),
    AttackClass(
        13,
        "special case",
        "Is right only for the visible shapes, values or calls.",
        (
            "Several distributions and seeds, and cases with a structure.",
            "Timed calls meet unusual data, too, in random calls of a request, before, between and after the requests "
            "that count. Neither the rest of the data, nor the time before a call, nor the processors of threads, nor "
            "a stop tells these calls from others.",
            "Constant inputs and state (a new module's weights of 1 and biases of 0) are drawn at random in checked "
            "and timed calls. A task on which an input can be ignored is not calibrated.",
            "A result cannot be guessed from the distribution: inputs of timed calls are moved and scaled at random, "
            "some differ from usual data in one short stretch, one value or a few rows only, and declared masks have "
            "other densities.",
            "Limits of long sums and losses follow from the measured error of honest orders of summation.",
            "Winners are tried on held-out shapes, seeds and distributions, some of these with usual moments.",
        ),
        (
            "A shape or a value that nobody tried. Where inputs seem to lie between two bounds, larger ones are not "
            "tried.",
            "Whole numbers, and masks of a module, that are the same in every draw.",
            "An unusual part that a kernel finds in most draws by reading a large share of the data: statistics of a "
            "quarter of a batch passed at times, in bf16.",
            "A comparison of computed numbers that are exactly equal, in one element of 16: rounding may decide it.",
            "Large tasks with one set of buffers: each unusual sample tries one variant there, so that a kernel which "
            "fails on one variant alone and is careful while it is checked may pass.",
            "A device without the memory for a reference beside all buffers: whoever is careful in checked calls only.",
        ),
    ),
    AttackClass(
        14,
        "failed launch",
        "Launches a kernel that cannot start, and garbage stays.",
        (
            "Launch and device errors are read after every call.",
            "Outputs are filled with a pattern beforehand.",
        ),
        (),
    ),
    AttackClass(
        15,
        "library call",
        "Calls a library, openly or as a fallback, instead of computing.",
        (
            "The imports of the built object must be on a list of allowed functions.",
            "CPU: no library can be opened once the process is set up.",
            "Names of kernels and operators are traced in all threads, and a traced call must give the same bits as "
            "others.",
            "Python on the CPU, where the judge is root: it looks from outside at which file's code the stopped "
            "process executes. Only extensions whose imports were checked are the candidate's own.",
            "Operators of PyTorch must not be replaced.",
        ),
        (
            "A library's kernel that is copied into the candidate's own source, or into the memory of its extension.",
            "Python: a library that takes less than a tenth of the time of a call, or 0.2 ms beside much work of its "
            "own.",
            "A call that notices the trace and then computes the same bits by itself.",
            "Python on the CPU where the judge is not root: functions of libraries that are loaded anyway, called by "
            "their address.",
        ),
    ),
    AttackClass(
        16,
        "persisting cache",
        "Reserves a part of the L2 cache that survives the flush.",
        ("The calls that do it are refused.", "The reservation and its limit are reset before every flush."),
        (),
    ),
    AttackClass(
        17,
        "few samples",
        "Is slow at first so that few samples are taken, or behaves until it has been seen.",
        (
            "A fixed minimum of samples is taken.",
            "Every timed result is checked.",
            "Calls that wait are refused.",
        ),
        (),
    ),
    AttackClass(
        18,
        "impossible speed",
        "Is faster than the hardware can be.",
        (
            "A time below what memory and arithmetic need at measured peaks is refused.",
            "Every sample leaves some sets of buffers out, which must stay untouched, so that no call does the work of "
            "others.",
            "CPU: the process is stopped in the middle of samples that do not count, and then no call may have begun "
            "before the one before it has ended.",
        ),
        (
            "Work that is skipped by less than the distance to that floor, if the result is right.",
            "Calls recorded into a CUDA graph are the same in every sample.",
            "CPU: a native candidate that reads in the memory of its process which calls follow, computes several of "
            "them at once and keeps the results to itself until it is their turn.",
        ),
    ),
    AttackClass(
        19,
        "reaching out",
        "Reads files, the environment or the network, or writes where it should not.",
        (
            "The sandbox: no network, Landlock, seccomp, another user, an empty environment.",
            "The imports of the built object must be on a list of allowed functions.",
        ),
        ("A machine without these layers. Every result names the layers that were active.",),
    ),
    AttackClass(
        20,
        "out of bounds",
        "Writes or reads outside its buffers.",
        (
            "CPU: pages around the buffers that cannot be reached.",
            "CUDA: zones around the buffers whose bytes must stay as they are.",
            "Winners run under sanitizers.",
        ),
        (
            "Reads that do not change the result are found by verification only: on CUDA all of them; on the CPU "
            "those just before a buffer, and those of a kernel that handles its own faults without importing what "
            "that needs.",
        ),
    ),
    AttackClass(
        21,
        "data race",
        "Has a race or reads uninitialised memory, and is right by luck.",
        ("Repeated runs must agree.", "Winners run under racecheck, initcheck and synccheck."),
        ("Races in global memory that show in no run.",),
    ),
    AttackClass(
        22,
        "resource bomb",
        "Hangs, forks, fills memory or disk, prints without end.",
        (
            "Limits of time, after which the whole process group is killed; limits of resources; messages of bounded "
            "size.",
            "A quota of files, depth and bytes for the scratch folder, which is removed without recursion and within a "
            "limit of time.",
        ),
        (
            "Host memory of a GPU candidate.",
            "What is written to the scratch folder between two looks at the quota.",
        ),
    ),
)

BY_NUMBER = {each.number: each for each in CLASSES}


def title(number: int) -> str:
    """The short title of a class."""
    return BY_NUMBER[number].title


def rejection(number: int, text: str) -> Objection:
    """The objection to an attack of this class; the reason begins with the title of the class."""
    return Objection(Status.REJECTED, number, f"{title(number)}: {text}")
