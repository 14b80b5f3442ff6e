"""Runs kernels on the emulated device of the tests, with small blocks, and compares them with PyTorch.

    python benchmarks/probes/memory_bound/emulate.py [argmax path/to/batch_norm.cu ...]

A name is the candidate of this folder or, where there is none, the kernel of the collection; a path is that file, checked as
the task that it is named after. The notes say which candidates there were. Without arguments: every task that has a check.

The text of a kernel and of the headers it includes is translated: inline PTX becomes C++, launches become calls. Bulk copies
happen at once, barriers in shared memory are counters, blocks of a cluster or of a cooperative grid are threads. It finds
wrong indices, sums and missing cases; it finds no races. Takes about half a minute to some minutes for a task.
"""

import ctypes
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
import torch.nn.functional as F

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
HEADERS = ROOT / "src/warpsmith/kernels/include/warpsmith"
COLLECTION = ROOT / "src/warpsmith/kernels/cuda"
WORK = Path(tempfile.mkdtemp())
EMU = (ROOT / "tests/kernel_templates/emulator.h").read_text()
EMU = EMU.replace("  if (any) return true;\n  bool block","  if (any) return true;\n  for (int t = 0; t < count; ++t) if (threads[t].wait == RUNNABLE) return true;\n  bool block")
EMU = EMU.replace("inline cudaError_t cudaDeviceGetAttribute(int* value, int, int) { return *value = 2, cudaSuccess; }","inline int the_units = 2;\ninline cudaError_t cudaDeviceGetAttribute(int* value, int, int) { return *value = the_units, cudaSuccess; }")
EMU = EMU.replace("__shared__ static thread_local","__shared__ static thread_local\n#define __host__\n#define __grid_constant__\n#define __noinline__")
EMU = EMU.replace("namespace cooperative_groups {","""
namespace emulated {
inline std::mutex big; inline std::condition_variable big_changed;
inline thread_local int team = 1, my_rank = 0; 
inline int wait_count = 0, wait_gen = 0;
inline void yield() { threads[current].wait = RUNNABLE; swapcontext(&threads[current].context, &scheduler); }
inline void team_sync() {
  wait_for(BLOCK);
  if (current == 0 && team > 1) {
    std::unique_lock<std::mutex> held(big);
    const int gen = wait_gen;
    if (++wait_count == team) { wait_count = 0; ++wait_gen; big_changed.notify_all(); }
    else big_changed.wait(held, [&]{ return wait_gen != gen; });
  }
  wait_for(BLOCK);
}
struct MB { uint16_t count, pending; int32_t state; };  // state: tx*2+phase
static_assert(sizeof(MB)==8);
inline void check(MB& m) { if (m.pending == 0 && (m.state >> 1) == 0) m.pending = m.count, m.state ^= 1; }
inline void mb_init(void* b, unsigned n) { *(MB*)b = {uint16_t(n), uint16_t(n), 0}; }
inline void mb_arrive(void* b, int tx = 0) { std::lock_guard<std::mutex> h(big); MB& m=*(MB*)b; m.state += tx * 2; if (!m.pending) std::abort(); --m.pending; check(m); }
inline void mb_tx(void* b, int bytes) { std::lock_guard<std::mutex> h(big); MB& m=*(MB*)b; m.state -= bytes * 2; check(m); }
inline bool mb_done(void* b, unsigned parity) { std::lock_guard<std::mutex> h(big); return unsigned(((MB*)b)->state & 1) != parity; }
inline void mb_wait(void* b, unsigned parity) { while (!mb_done(b, parity)) { yield(); if (team > 1) std::this_thread::yield(); } }
inline void run_team(int blocks, unsigned first, dim3 grid, int size, int64_t shared_bytes) {
  std::vector<std::thread> all;
  for (int each = 0; each < blocks; ++each)
    all.emplace_back([=] {
      begin(grid, size, shared_bytes);
      team = blocks, my_rank = each;
      cluster.anchors[each] = &anchor;
      { std::unique_lock<std::mutex> held(big); const int gen = wait_gen;
        if (++wait_count == blocks) { wait_count = 0; ++wait_gen; big_changed.notify_all(); } else big_changed.wait(held, [&]{ return wait_gen != gen; }); }
      run_block(dim3(first + each, 0, 0), shared_bytes);
    });
  for (auto& t : all) t.join();
}
inline void bar_named(int n) {
  static thread_local int came = 0, gen = 0;
  const int mine = gen;
  if (++came == n) came = 0, ++gen; else while (gen == mine) yield();
}
}
namespace cooperative_groups {""",1)
EMU += '''
struct alignas(16) float4 { float x, y, z, w; };
struct alignas(8) float2 { float x, y; };
struct alignas(4) char4 { signed char x, y, z, w; };
inline float4 make_float4(float a, float b, float c, float d) { return {a,b,c,d}; }
inline float2 make_float2(float a, float b) { return {a,b}; }
inline char4 make_char4(signed char a, signed char b, signed char c, signed char d) { return {a,b,c,d}; }
template <typename T> T __ldcs(const T* from) { return *from; }
template <typename T> void __stcg(T* to, T value) { *to = value; }
template <typename T> T shfl_from(T value, int lane) {
  const int me = emulated::current;
  std::memcpy(emulated::cells[me], &value, sizeof(T));
  emulated::wait_for(emulated::WARP);
  std::memcpy(&value, emulated::cells[me / 32 * 32 + lane], sizeof(T));
  emulated::wait_for(emulated::WARP);
  return value;
}
template <typename T> T __shfl_sync(unsigned, T v, int lane) { return shfl_from(v, lane % 32); }
template <typename T> T __shfl_up_sync(unsigned, T v, int d) { const int l = emulated::current % 32; return shfl_from(v, l >= d ? l - d : l); }
template <typename T> T __shfl_down_sync(unsigned, T v, int d) { const int l = emulated::current % 32; return shfl_from(v, l + d < 32 ? l + d : l); }
inline unsigned __reduce_max_sync(unsigned m, unsigned v) { for (int s = 16; s; s /= 2) v = std::max(v, __shfl_xor_sync(m, v, s)); return v; }
inline unsigned __reduce_min_sync(unsigned m, unsigned v) { for (int s = 16; s; s /= 2) v = std::min(v, __shfl_xor_sync(m, v, s)); return v; }
inline unsigned __ballot_sync(unsigned m, bool p) { unsigned v = p ? 1u << (emulated::current % 32) : 0; for (int s = 16; s; s /= 2) v |= __shfl_xor_sync(m, v, s); return v; }
inline bool __any_sync(unsigned m, bool p) { return __ballot_sync(m, p) != 0; }
inline int __popcll(unsigned long long v) { return __builtin_popcountll(v); }
inline int __ffs(int v) { return __builtin_ffs(v); }
inline unsigned __float_as_uint(float x) { unsigned u; std::memcpy(&u, &x, 4); return u; }
inline float __uint_as_float(unsigned x) { float u; std::memcpy(&u, &x, 4); return u; }
inline unsigned max(unsigned a, unsigned b) { return a > b ? a : b; }
inline unsigned min(unsigned a, unsigned b) { return a < b ? a : b; }
inline void __nanosleep(int) { std::this_thread::yield(); }
struct cudaLaunchAttribute { int id; struct { dim3 clusterDim; int cooperative; } val; };
enum { cudaLaunchAttributeClusterDimension = 1, cudaLaunchAttributeCooperative, cudaFuncAttributeNonPortableClusterSizeAllowed };
struct cudaLaunchConfig_t { dim3 gridDim, blockDim; size_t dynamicSmemBytes; cudaStream_t stream; cudaLaunchAttribute* attrs; int numAttrs; };
template <typename K> cudaError_t cudaOccupancyMaxActiveClusters(int* n, K, cudaLaunchConfig_t*) { *n = 2; return cudaSuccess; }
template <typename K> cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* n, K, int, size_t) { *n = 1; return cudaSuccess; }
template <typename K, typename... A> cudaError_t cudaLaunchKernelEx(cudaLaunchConfig_t* c, K kernel, A... args) {
  int team = 1;
  for (int i = 0; i < c->numAttrs; ++i) {
    if (c->attrs[i].id == cudaLaunchAttributeClusterDimension) team = c->attrs[i].val.clusterDim.x;
    if (c->attrs[i].id == cudaLaunchAttributeCooperative) team = c->gridDim.x;
  }
  emulated::body = [=] { kernel(args...); };
  for (unsigned first = 0; first < c->gridDim.x; first += team)
    emulated::run_team(team, first, c->gridDim, c->blockDim.x, c->dynamicSmemBytes);
  return cudaSuccess;
}
template <typename K> void emulated_launch(dim3 grid, int threads, int64_t shared, K kernel) {
  emulated::body = kernel;
  std::thread([=] {
    emulated::begin(grid, threads, shared);
    for (unsigned z = 0; z < grid.z; ++z)
      for (unsigned y = 0; y < grid.y; ++y)
        for (unsigned x = 0; x < grid.x; ++x) emulated::run_block(dim3(x, y, z), shared);
  }).join();
}
template <typename K> void emulated_launch(unsigned grid, int threads, int64_t shared, K kernel) {
  emulated::body = kernel;
  for (unsigned b = 0; b < grid; ++b) emulated::run_team(1, b, dim3(grid), threads, shared);
}
'''


def function_body(text, name, body):
    """`text` with another body for the device function `name`."""
    m = re.search(r'(?:template [^\n]*\n)?__device__ __forceinline__ [^\n;{]*\b'+name+r'\([^{]*\{',text)
    if not m:
        return text
    depth, i = 1, m.end()
    while depth:
        depth += {"{": 1, "}": -1}.get(text[i], 0)
        i += 1
    return text[: m.end()] + body + text[i - 1 :]


def translate(t):
    """CUDA C++ of this folder and of the headers as C++ for the emulator."""
    t = function_body(t, 'max_nan','return a != a || b != b ? NAN : a > b ? a : b;')
    t = function_body(t, 'min_nan','return a != a || b != b ? NAN : a < b ? a : b;')
    t = re.sub(r'asm\("ex2\.approx(?:\.ftz)?\.f32 %0, %1;" : "=f"\(e\) : "f"\((.*)\)\);',r'e = exp2f(\1);',t)
    t = function_body(t, 'load_acquire','return __atomic_load_n(from, __ATOMIC_ACQUIRE);')
    t = function_body(t, 'store_release','__atomic_store_n(to, v, __ATOMIC_RELEASE);')
    t = function_body(t, 'add_acquire_release','return __atomic_fetch_add(to, v, __ATOMIC_ACQ_REL);')
    t = function_body(t, 'barrier_init','emulated::mb_init(barrier, count);')
    t = function_body(t, 'barrier_arrive','emulated::mb_arrive(barrier);')
    t = function_body(t, 'barrier_wait','emulated::mb_wait(barrier, parity);')
    t = function_body(t, 'barrier_wait_cluster','emulated::mb_wait(barrier, parity);')
    t = function_body(t, 'barrier_arrive_remote','emulated::mb_arrive(emulated::cluster.anchors[rank] + (reinterpret_cast<char*>(barrier) - &emulated::anchor));')
    t = function_body(t, 'cluster_sync','emulated::team_sync();')
    t = function_body(t, 'bulk_fetch','if (bytes % 16 || uintptr_t(to) % 16 || uintptr_t(from) % 16) std::abort(); std::memcpy(to, from, bytes); emulated::mb_arrive(barrier);')
    t = function_body(t, 'bulk_copy','if (bytes % 16 || uintptr_t(to) % 16 || uintptr_t(from) % 16) std::abort(); std::memcpy(to, from, bytes); emulated::mb_tx(barrier, int(bytes));')
    t = function_body(t, 'barrier_expect','emulated::mb_arrive(barrier, int(bytes));')
    t = function_body(t, 'load_cell','return __atomic_load_n(from, __ATOMIC_RELAXED);')
    t = function_body(t, 'store_cell','__atomic_store_n(to, v, __ATOMIC_RELAXED);')
    t = function_body(t, 'prefetch_bulk','if (bytes % 16 || uintptr_t(from) % 16) std::abort();')
    t = function_body(t, 'shared_address','return 0;')
    t = function_body(t, 'leaves_first','return 0;')
    t = function_body(t, 'leaves_last','return 0;')
    t = function_body(t, 'load_hinted','return *reinterpret_cast<const float4*>(from);')
    t = function_body(t, 'store_hinted','*reinterpret_cast<float4*>(to) = v;')
    t = function_body(t, 'copy_hinted','if (bytes % 16 || uintptr_t(from) % 16) std::abort(); std::memcpy(to, from, bytes); emulated::mb_tx(barrier, int(bytes));')
    t = re.sub(r'asm volatile\("barrier\.cluster\.arrive[^;]*;" ::: "memory"\);',';',t)
    t = re.sub(r'asm volatile\("barrier\.cluster\.wait[^;]*;" ::: "memory"\);','emulated::team_sync();',t)
    t = re.sub(r'asm volatile\("fence[^\n]*\);','',t)
    t = re.sub(r'asm volatile\("bar\.sync 1, %0;" ::"n"\(THREADS\) : "memory"\);','emulated::bar_named(THREADS);',t)
    t = re.sub(r'asm volatile\("mbarrier\.arrive\.expect_tx[^;]*;" ::"r"\(shared_address\((&arrived\[warp\])\)\),\s*"r"\(unsigned\(count\) \* 16\)\s*: "memory"\);',r'emulated::mb_arrive(\1, int(count) * 16);',t)
    t = re.sub(r'asm volatile\("cp\.async\.bulk[^;]*;" ::"r"\(\s*shared_address\(held \+ i\)\),[^;]*: "memory"\);','std::abort();',t)
    t = re.sub(r'extern __shared__ __align__\(128\) float4 (\w+)\[\];',r'float4* \1 = reinterpret_cast<float4*>(emulated::dynamic_bytes);',t)
    t = re.sub(r'extern __shared__ float (\w+)\[\];',r'float* \1 = reinterpret_cast<float*>(emulated::dynamic_bytes);',t)
    t = re.sub(r'#pragma unroll.*','',t)
    t = re.sub(r'(\w+(?:<(?:[^<>;]|<[^<>]*>)*>)?)\s*<<<(.*?), ([^,]*), ([^,]*), ([^,]*?)>>>\(\s*(.*?)\);',lambda m:f'emulated_launch({m[2]}, {m[3]}, {m[4]}, [=] {{ {m[1]}({m[6]}); }});',t,flags=re.S)
    return t

(WORK / "warpsmith").mkdir()
(WORK / "cuda_runtime.h").write_text("#pragma once\n" + EMU)
(WORK / "cooperative_groups.h").write_text("")
for header in HEADERS.glob("*.cuh"):
    (WORK / "warpsmith" / header.name).write_text(translate(header.read_text()))
BUILT = 0
PATHS = {}  # the file of a task that is not the usual one


def file_of(name):
    """The text that is checked for a task."""
    here = HERE / f"{name}.cu"
    return PATHS.get(name) or (here if here.exists() else COLLECTION / f"{name}.cu")


def build(name, *defines):
    """The library of a kernel with values for its macros."""
    global BUILT
    BUILT += 1
    source, library = WORK / f"{name}.cpp", WORK / f"{name}_{BUILT}.so"
    text = translate(file_of(name).read_text())
    text = text.replace('extern "C"', 'extern "C" __attribute__((visibility("default")))')
    source.write_text("#include <cuda_runtime.h>\n" + text)
    flags = "-std=c++17 -O1 -march=native -fPIC -shared -w -fvisibility=hidden -fno-gnu-unique -fmax-errors=8 -pthread"
    made = subprocess.run(
        ["g++", *flags.split(), f"-I{WORK}", *(f"-D{each}" for each in defines), str(source), "-o", str(library)],
        capture_output=True,
        text=True,
    )
    if made.returncode:
        sys.exit(made.stderr[:4000])
    loaded = ctypes.CDLL(str(library))
    if hasattr(loaded, "workspace_bytes"):
        loaded.workspace_bytes.restype = ctypes.c_int64
    return loaded


KEPT = []  # the memory behind tensors


def aligned(t):
    """A copy that begins at a multiple of 256 bytes."""
    memory = torch.empty(t.nbytes + 256, dtype=torch.uint8)
    KEPT.append(memory)
    begin = -memory.data_ptr() % 256
    view = memory[begin : begin + t.nbytes].view(t.dtype).reshape(t.shape)
    return view.copy_(t)


def call(library, tensors, sizes):
    """Calls `launch`; sizes are whole numbers and reals."""
    numbers = [ctypes.c_double(s) if isinstance(s, float) else ctypes.c_int64(s) for s in sizes]
    scratch = library.workspace_bytes(*numbers) if hasattr(library, "workspace_bytes") else 1
    workspace = aligned(torch.full((max(scratch, 1),), 0xFF, dtype=torch.uint8))
    pointers = [ctypes.c_void_p(t.data_ptr()) for t in tensors]
    assert library.launch(*pointers, *numbers, ctypes.c_void_p(workspace.data_ptr()), None) == 0


def shaped(x, kind):
    """Inputs of a kind."""
    if kind in ("large", "small"):
        x = x * (1e4 if kind == "large" else 1e-4)
    elif kind == "shifted":
        x = x + 1000
    elif kind == "spike":
        x.view(-1)[7 % x.numel()] = 1e6
    elif kind == "constant":
        x = torch.full_like(x, 123.456)
    elif kind == "nan":
        x.view(-1)[7 % x.numel()] = float("nan")
    elif kind == "tiny":
        x = x * 1e-38
    elif kind == "huge":
        x = x * 1e37
    return x


WRONG = 0


def report(right, *what):
    """Says what is wrong."""
    global WRONG
    if not right:
        WRONG += 1
        print("WRONG", *what, flush=True)


def near(found, wanted, eager, slack=1e-6):
    """Whether the error is at most three times PyTorch's, or `slack` of the largest result; NaN at the same places."""
    error = (found - wanted).abs().nan_to_num(0).max().item()
    usual = (eager - wanted).abs().nan_to_num(0).max().item()
    largest = wanted.abs().nan_to_num(0).max().item()
    return error <= 3 * usual + slack * largest + 1e-30 and torch.equal(found.isnan(), wanted.isnan())


def slack_of(kind):
    """For normalisations: a mean near 1000 is known to 6e-5, which one row of PyTorch's may hit by chance."""
    return 4e-5 if kind == "shifted" else 2e-6


def out_of(*shape, dtype=torch.float32):
    return aligned(torch.full(shape, 77, dtype=dtype))


def cross_entropy():
    for defines in (
        ("TUNE_PACKS=4",),
        ("TUNE_PACKS=8", "TUNE_RESIDENT=1"),
        ("TUNE_STAY=0",),
        ("TUNE_WAY=1", "TUNE_RESIDENT=1"),
        ("TUNE_WAY=1", "TUNE_WARPS=2", "TUNE_PACKS=2", "TUNE_SLOTS=2", "TUNE_RESIDENT=2"),
    ):
        library = build("cross_entropy", *defines)
        for rows, classes in ((64, 500), (61, 1001), (200, 10), (40, 4096), (23, 1022), (20, 3), (3, 9000), (33, 1)):
            for kind in ("own", "large", "small", "shifted", "spike", "nan", "infinite", "ignored"):
                x, y = shaped(torch.randn(rows, classes), kind), torch.randint(0, classes, (rows,))
                if kind == "infinite":
                    x[0, : classes // 2] = float("-inf")
                if kind == "ignored":
                    y[::3] = -100
                x, found = aligned(x), out_of(1)
                call(library, (x, y, found), (rows, classes))
                wanted, eager = F.cross_entropy(x.double(), y), F.cross_entropy(x, y)
                same = wanted.item() == found.item()  # infinite
                report(same or near(found[0], wanted, eager, 3e-7), "cross_entropy", defines, rows, classes, kind)


def batch_norm():
    for defines in (
        ("TUNE_THREADS=64", "TUNE_HELD=4", "TUNE_KEPT=1"),
        ("TUNE_THREADS=64", "TUNE_HELD=16", "TUNE_KEPT=1"),
        ("TUNE_THREADS=32", "TUNE_HELD=2", "TUNE_KEPT=1", "TUNE_HINTS=2", "TUNE_TOGETHER=3"),
        ("TUNE_THREADS=96", "TUNE_HELD=1", "TUNE_KEPT=1", "TUNE_TOGETHER=1", "TUNE_PREFETCH=1"),
    ):
        library = build("batch_norm", *defines)
        for shape in ((3, 4, 16, 20), (2, 3, 13, 17), (5, 3, 24, 24), (7, 2, 40, 32), (9, 3, 36, 40)):
            for kind in ("own", "large", "shifted", "spike", "constant"):
                x = aligned(shaped(torch.randn(shape) + 0.5, kind))
                w, b, found = torch.randn(shape[1]) * 0.1 + 1, torch.randn(shape[1]) * 0.1, out_of(*shape)
                call(library, (x, w, b, found), (1e-5, *shape))
                wanted = F.batch_norm(x.double(), None, None, w.double(), b.double(), True, 0.0, 1e-5)
                eager = F.batch_norm(x, None, None, w, b, True, 0.0, 1e-5)
                report(near(found, wanted, eager, slack_of(kind)), "batch_norm", defines, shape, kind)


def layer_norm():
    small = ("TUNE_SHORT=300", "TUNE_WARPS=2")
    for defines in (
        (*small, "TUNE_PACKS=4", "TUNE_SLOTS=3", "TUNE_EARLY=1", "TUNE_AHEAD=2"),
        (*small, "TUNE_PACKS=6", "TUNE_SLOTS=4", "TUNE_EARLY=0", "TUNE_AHEAD=3", "TUNE_ALIGN=1"),
        ("TUNE_SHORT=300", "TUNE_WARPS=3", "TUNE_PACKS=2", "TUNE_SLOTS=5", "TUNE_EARLY=1", "TUNE_AHEAD=1"),
        (),
    ):
        library = build("layer_norm", *defines)
        for shape in ((5, 4, 15, 20), (1, 3, 28, 20), (7, 2, 16, 32), (16, 2, 25, 32), (2, 8, 16, 16), (3, 9, 31, 40), (4, 5, 9, 7)):
            for kind in ("own", "large", "small", "shifted", "spike", "constant", "nan"):
                x = aligned(shaped(torch.randn(shape) + 0.5, kind))
                w, b = aligned(torch.randn(shape[1:]) * 0.1 + 1), aligned(torch.randn(shape[1:]) * 0.1)
                found = out_of(*shape)
                call(library, (x, w, b, found), (1e-5, *shape))
                wanted = F.layer_norm(x.double(), shape[1:], w.double(), b.double(), 1e-5)
                eager = F.layer_norm(x, shape[1:], w, b, 1e-5)
                report(near(found, wanted, eager, slack_of(kind)), "layer_norm", defines, shape, kind)


SMALL = ("TUNE_KEPT_THREADS=64", "TUNE_KEPT_PACKS=2", "TUNE_KEPT=3", "TUNE_SHORT=300")


def group_norm(name="group_norm", after=lambda x: x):
    spread = ("TUNE_KEPT=1", "TUNE_CLUSTER=300", "TUNE_KEPT_THREADS=64")
    ways = ((*spread, "TUNE_KEPT_PACKS=2", "TUNE_SPREAD=20"), (*spread, "TUNE_KEPT_PACKS=4", "TUNE_SPREAD=10"))
    shapes = ((3, 8, 48, 48, 1), (2, 4, 65, 66, 1), (2, 64, 10, 12, 8), (3, 6, 9, 7, 2))
    if name == "group_norm_silu":
        ways = ((), SMALL)
        shapes = ((2, 64, 10, 12, 32), (3, 96, 9, 7, 32), (2, 8, 16, 20, 2), (2, 6, 7, 9, 2), (1, 8, 30, 20, 1))
    for defines in ways:
        library = build(name, *defines)
        for *shape, groups in shapes:
            for kind in ("own", "large", "shifted", "spike", "constant"):
                x = aligned(shaped(torch.randn(shape) + 0.5, kind))
                w, b, found = torch.randn(shape[1]) * 0.1 + 1, torch.randn(shape[1]) * 0.1, out_of(*shape)
                call(library, (x, w, b, found), (groups, 1e-5, *shape))
                wanted = after(F.group_norm(x.double(), groups, w.double(), b.double(), 1e-5))
                eager = after(F.group_norm(x, groups, w, b, 1e-5))
                report(near(found, wanted, eager, slack_of(kind)), name, defines, shape, kind)


def group_norm_silu():
    group_norm("group_norm_silu", F.silu)


def top_k_softmax():
    for lanes in (0, 1, 2):
        library = build("top_k_softmax", f"TUNE_ROW_LANES={lanes}")
        shapes = ((37, 64), (61, 47), (100, 32), (9, 8), (30, 128), (13, 100), (21, 256), (10, 250), (7, 300), (33, 61))
        for rows, experts in shapes:
            for kind in ("own", "close", "eighth", "integers", "constant", "nan", "infinite", "spike", "negative"):
                x = shaped(torch.randn(rows, experts), kind)
                if kind == "close":
                    x = 1 + x * 1e-6
                elif kind == "eighth" and experts > 8:  # nearly the ninth
                    for row in x:
                        places = torch.randperm(experts)
                        row[places[:7]] = torch.arange(107.0, 100.0, -1)
                        row[places[7]], row[places[8]] = 50.000004, 50.0
                elif kind == "integers":
                    x = (x * 3).round()
                elif kind == "infinite":
                    x[3, 5], x[4], x[2, : experts - 4] = float("inf"), float("-inf"), float("-inf")
                elif kind == "negative":
                    x = -x.abs() * 1e30
                x, weights, picks = aligned(x), out_of(rows, 8), out_of(rows, 8, dtype=torch.int64)
                call(library, (x, weights, picks), (rows, experts))
                best = torch.topk(x, 8, dim=-1)[0]
                right = torch.allclose(x.gather(1, picks), best, rtol=0, atol=0, equal_nan=True)
                right &= all(len(set(row)) == 8 for row in picks.tolist())
                right &= torch.allclose(weights, best.softmax(-1), rtol=2e-6, atol=1e-7, equal_nan=True)
                report(right, "top_k_softmax", lanes, rows, experts, kind)


def softmax_cross_entropy():
    for defines in ((), SMALL, ("TUNE_WARPS=2", "TUNE_RESIDENT=2")):
        library = build("softmax_cross_entropy", *defines)
        for rows, classes in ((12, 300), (9, 1001), (5, 1000), (7, 4100), (4, 3), (5, 3001)):
            for kind in ("own", "large", "small", "shifted", "spike", "nan", "infinite"):
                x, y = shaped(torch.randn(rows, classes), kind), torch.randint(0, classes, (rows,))
                if kind == "infinite":
                    x[0, : classes // 2], y[0] = float("-inf"), classes - 1
                x, loss, gradient = aligned(x), out_of(rows), out_of(rows, classes)
                call(library, (x, y, loss, gradient), (rows, classes))

                def reference(a, y=y, classes=classes):
                    logs = torch.log_softmax(a, dim=-1)
                    return -logs.gather(1, y[:, None]).squeeze(1), logs.exp() - F.one_hot(y, classes)

                pairs = zip((loss, gradient), reference(x.double()), reference(x), strict=True)
                report(all(near(*each, 3e-7) for each in pairs), "softmax_cross_entropy", defines, rows, classes, kind)


def quantize_dequantize():
    shapes = ((12, 300), (9, 1001), (5, 1000), (4, 4100), (4, 3), (5, 3001))
    many = ((266, 1024), (265, 3000))
    ways = [((), shapes), (SMALL, shapes), ((*SMALL, "TUNE_DEEP=2"), shapes)]
    for defines, sizes in ways + [((f"TUNE_REST={n}",), many) for n in (1, 2, 3)]:
        library = build("quantize_dequantize", *defines)
        for rows, cols in sizes:
            for kind in ("own", "large", "tiny", "huge", "spike", "zero"):
                x = shaped(torch.randn(rows, cols), kind)
                if kind == "zero":
                    x[0] = 0
                x, codes, y = aligned(x), out_of(rows, cols, dtype=torch.int8), out_of(rows, cols)
                call(library, (x, codes, y), (rows, cols))
                _, exponent = torch.frexp(x.abs().amax(-1, keepdim=True))
                scale = torch.ldexp(torch.ones_like(x[:, :1]), exponent - 7)
                wanted = torch.clamp(torch.round(x / scale), -127, 127)
                right = torch.equal(wanted.to(torch.int8), codes) and torch.equal(wanted * scale, y)
                report(right, "quantize_dequantize", defines, rows, cols, kind)


def instance_norm():
    few = ("TUNE_WARPS=2", "TUNE_BLOCKS=2", "TUNE_LONG=8")
    ways = ((*few, "TUNE_ROOM=16", "TUNE_EARLY=2"), (*few, "TUNE_ROOM=32", "TUNE_STEP=4", "TUNE_EARLY=0"))
    ways += (("TUNE_WARPS=3", "TUNE_BLOCKS=4", "TUNE_LONG=8", "TUNE_ROOM=24", "TUNE_EARLY=1"), SMALL)
    for defines in ways:
        library = build("instance_norm", *defines)
        for shape in ((3, 5, 16, 20), (2, 3, 40, 32), (2, 2, 9, 7), (7, 1, 25, 32), (1, 1, 48, 64)):
            for kind in ("own", "large", "shifted", "spike", "constant", "nan"):
                x = aligned(shaped(torch.randn(shape) + 0.5, kind))
                found = out_of(*shape)
                call(library, (x, found), (1e-5, *shape))
                wanted, eager = F.instance_norm(x.double(), eps=1e-5), F.instance_norm(x, eps=1e-5)
                report(near(found, wanted, eager, slack_of(kind)), "instance_norm", defines, shape, kind)


def row_length(name, length):
    small = ("TUNE_KEPT_THREADS=64", "TUNE_KEPT_PACKS=2", "TUNE_KEPT=5", "TUNE_LONG=300")
    for defines in ((*small, "TUNE_BLOCKS=2"), (*small, "TUNE_BLOCKS=4"), ()):
        library = build(name, *defines)
        for rows, cols in ((9, 999), (11, 1024), (7, 4099), (5, 301), (13, 256), (6, 3)):
            for kind in ("own", "large", "small", "spike", "constant", "nan"):
                x, found = aligned(shaped(torch.randn(rows, cols), kind)), out_of(rows, cols)
                call(library, (x, found), (rows, cols))
                report(near(found, length(x.double()), length(x), 3e-7), name, defines, rows, cols, kind)


def l1_norm():
    row_length("l1_norm", lambda x: x / x.abs().mean(dim=1, keepdim=True))


def l2_norm():
    row_length("l2_norm", lambda x: x / torch.linalg.vector_norm(x, dim=1, keepdim=True))


def columns(name, function):
    small = ("TUNE_THREADS=64", "TUNE_PACKS=4", "TUNE_STAGES=3")
    ways = ((*small, "TUNE_PART=2"), (*small, "TUNE_PART=4"), (*small, "TUNE_PART=1"))
    shapes = [(2, 40, 63), (2, 100, 16), (3, 400, 255), (2, 21, 100), (1, 3, 4), (1, 66, 30), (1, 640, 1000), (1, 320, 63)]
    shapes += [(1, 3, 129), (5, 33, 1), (1, 200, 1), (2, 1, 1), (2, 5, 3), (5, 128, 64), (0, 4, 4), (3, 4, 0)]
    shapes += [(2, 600, 63), (6, 2000, 1)]
    for defines in ways:
        library = build(name, *defines)
        for shape in shapes:
            for values in ("own", "integers", "nan", "infinite", "least", "most"):
                x = torch.randn(shape)
                if values == "integers":
                    x = x.round()
                elif values == "nan" and x.numel():
                    x[0, shape[1] // 2, 0] = x[-1, shape[1] - 1, shape[2] - 1] = float("nan")
                    x[-1, shape[1] // 3, shape[2] - 1] = float("nan")
                elif values == "infinite" and x.numel():
                    x[0, shape[1] // 2, 0], x[-1, 0, shape[2] - 1] = float("inf"), -float("inf")
                elif values in ("least", "most"):
                    x = torch.full_like(x, float("-inf" if values == "least" else "inf"))
                x = aligned(x)
                eager = function(x, dim=1)
                found = out_of(shape[0], shape[2], dtype=eager.dtype)
                call(library, (x, found), shape)
                if eager.dtype == torch.int64:  # the first one; PyTorch may name another of equal elements
                    best = x.gather(1, eager[:, None])
                    right = torch.equal(found, ((x == best) | (x.isnan() & best.isnan())).int().argmax(dim=1))
                else:
                    right = torch.equal(found.isinf(), eager.isinf()) and torch.equal(found.isnan(), eager.isnan())
                    same = [each.nan_to_num(0, 0, 0) for each in (found, function(x.double(), dim=1), eager)]
                    right &= not x.numel() or near(*same, 2e-7)
                report(right, name, defines, shape, values)


def column_check(name, function):
    def check():
        columns(name, function)

    check.__name__ = name
    return check


def rotary_embedding():
    library = build("rotary_embedding")
    for shape in ((2, 3, 5, 8, 4), (1, 1, 1, 2, 1), (2, 2, 7, 10, 5), (1, 3, 67, 64, 32), (0, 3, 4, 8, 4)):
        batch, heads, length, width, pairs = shape
        q, k = (aligned(torch.randn(batch, heads, length, width)) for _ in "qk")
        angles = aligned(torch.rand(length, pairs) * 100)
        found = [out_of(*q.shape), out_of(*q.shape)]
        call(library, (q, k, angles, *found), shape)
        cosine, sine = (torch.cat((each, each), -1) for each in (angles.cos(), angles.sin()))
        for x, y in zip((q, k), found, strict=True):
            wanted = x * cosine + torch.cat((-x[..., pairs:], x[..., :pairs]), -1) * sine
            report(torch.allclose(y, wanted, rtol=1e-5, atol=2e-6), "rotary_embedding", shape)


def softmax():
    small = ("TUNE_CLUSTER=300", "TUNE_KEPT_THREADS=64", "TUNE_KEPT=3", "TUNE_SPREAD=4")
    for defines in ((), small):
        library = build("softmax", *defines)
        for rows, cols in ((9, 2000), (7, 1023), (5, 2045), (1, 800), (3, 200), (5, 1), (1, 4097), (3, 13001)):
            for kind in ("own", "large", "shifted", "nan", "infinite"):
                x = shaped(torch.randn(rows, cols), kind)
                if kind == "infinite":
                    x[0, : cols // 2] = float("-inf")
                x, found = aligned(x), out_of(rows, cols)
                call(library, (x, found), (rows, cols))
                wanted, eager = x.double().softmax(-1), x.softmax(-1)
                report(near(found, wanted, eager, 3e-7), "softmax", defines, rows, cols, kind)


REDUCTIONS = {"sum_reduction": torch.sum, "mean_reduction": torch.mean, "max_reduction": torch.amax}
REDUCTIONS |= {"min_reduction": torch.amin, "argmax": torch.argmax, "argmin": torch.argmin}
CHECKS = tuple(column_check(*each) for each in REDUCTIONS.items()) + (rotary_embedding, softmax)
CHECKS += (cross_entropy, batch_norm, layer_norm, group_norm, group_norm_silu, instance_norm, l1_norm, l2_norm)
CHECKS += (top_k_softmax, softmax_cross_entropy, quantize_dequantize)
NAMES = {check.__name__: check for check in CHECKS}
torch.manual_seed(0)
chosen = sys.argv[1:] or list(NAMES)
for argument in chosen:
    name = Path(argument).stem
    if name not in NAMES:
        sys.exit(f"no check is named {name}; there are {', '.join(NAMES)}")
    if argument.endswith(".cu"):
        PATHS[name] = Path(argument)
    before = WRONG
    NAMES[name]()
    KEPT.clear()
    file = file_of(name)
    shown = file.relative_to(ROOT) if file.is_relative_to(ROOT) else file
    print(shown, "right" if WRONG == before else "wrong", flush=True)
    PATHS.pop(name, None)
sys.exit(WRONG > 0)
