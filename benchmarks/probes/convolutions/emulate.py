"""Runs the candidates of this folder on the emulated device of the tests, with small sizes, and compares them with PyTorch.

    python benchmarks/probes/convolutions/emulate.py [NAME ...]

NAME is a task with its kind, such as conv3d.flat. The text of a candidate and of the headers it includes is translated: bulk
copies happen at once, products of warpgroups and other copies when their thread waits for them (the latest that is allowed),
barriers in shared memory are counters, launches become calls. It finds wrong indices and sums, waits that are missing, memory
that is reused too early, and missing cases (sums of products are cut off to fp32, as tensor cores do); it finds no races between warps that need no wait in this order of execution. All of them take about a quarter of an hour.
"""

import ctypes
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from candidates import FED, FLAT, HELD, STRIDED, WHOLE, fed, flat, held, strided, whole
from tasks import TASKS, form, ref

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
HEADERS = ROOT / "src/warpsmith/kernels/include/warpsmith"
WORK = Path(tempfile.mkdtemp())

DEVICE = r"""
namespace emulated {
inline void yield() { threads[current].wait = RUNNABLE; swapcontext(&threads[current].context, &scheduler); }
struct Counter { uint16_t count, pending; int32_t state; };  // state: bytes on their way, and the phase
inline void check(Counter& c) { if (!c.pending && !(c.state >> 1)) c.pending = c.count, c.state ^= 1; }
inline void arrive_at(void* b, int bytes) {
  Counter& c = *static_cast<Counter*>(b);
  if (!c.pending) std::abort();
  c.state += 2 * bytes, --c.pending;
  check(c);
}
inline void bar_named(int id, int threads) {
  static int came[16], round[16];
  const int mine = round[id];
  if (++came[id] == threads) came[id] = 0, ++round[id];
  else while (round[id] == mine) yield();
}
// What a thread has begun and not waited for, in groups; it happens when the thread waits for it.
struct Pending {
  std::vector<std::vector<std::function<void()>>> groups = {{}};
  void add(std::function<void()> what) { groups.back().push_back(std::move(what)); }
  void commit() { groups.emplace_back(); }
  void wait(int left) {
    while (int(groups.size()) > left + 1) {
      for (auto& each : groups.front()) each();
      groups.erase(groups.begin());
    }
  }
};
inline Pending products[1024], copies[1024];
}  // namespace emulated
struct alignas(16) float4 { float x, y, z, w; };
struct alignas(8) float2 { float x, y; };
struct __half2 { __half x, y; };
inline __half2 __floats2half2_rn(float a, float b) { return {__half(a), __half(b)}; }
inline float2 __half22float2(__half2 v) { return {float(v.x), float(v.y)}; }
inline uint4 make_uint4(unsigned a, unsigned b, unsigned c, unsigned d) { return {a, b, c, d}; }
inline float2 make_float2(float a, float b) { return {a, b}; }
inline float4 make_float4(float a, float b, float c, float d) { return {a, b, c, d}; }
inline unsigned __float_as_uint(float v) { unsigned u; std::memcpy(&u, &v, 4); return u; }
inline float __uint_as_float(unsigned v) { float u; std::memcpy(&u, &v, 4); return u; }
inline unsigned __reduce_or_sync(unsigned m, unsigned v) { for (int s = 16; s; s /= 2) v |= __shfl_xor_sync(m, v, s); return v; }
inline void atomicOr(unsigned* at, unsigned v) { *at |= v; }
template <typename T> T __ldcs(const T* from) { return *from; }
using std::min;
using std::max;
namespace warpsmith {
inline unsigned shared_address(const void* p) {
  const auto at = static_cast<const unsigned char*>(p) - emulated::dynamic_bytes;
  if (at < 0 || at >= (256 << 10)) std::abort();
  return unsigned(at);
}
inline void barrier_init(uint64_t* b, unsigned n) {
  *reinterpret_cast<emulated::Counter*>(b) = {uint16_t(n), uint16_t(n), 0};
}
inline void barriers_initialised() {}
inline void barrier_arrive(uint64_t* b) { emulated::arrive_at(b, 0); }
inline void barrier_expect(uint64_t* b, unsigned bytes) { emulated::arrive_at(b, int(bytes)); }
inline void barrier_wait(uint64_t* b, unsigned parity) {
  while (unsigned(reinterpret_cast<emulated::Counter*>(b)->state & 1) == parity) emulated::yield();
}
inline void bulk_copy(void* to, const void* from, unsigned bytes, uint64_t* b) {
  if (!bytes || bytes % 16 || uintptr_t(to) % 16 || uintptr_t(from) % 16) std::abort();
  if (shared_address(to) + bytes > (227 << 10)) std::abort();
  std::memcpy(to, from, bytes);
  auto& c = *reinterpret_cast<emulated::Counter*>(b);
  c.state -= 2 * int(bytes);
  emulated::check(c);
}
template <int N>
struct WgmmaF16 {
  static void run(float* d, uint64_t a, uint64_t b, int add) {
    emulated::products[emulated::current].add([=] { compute(d, a, b, add); });
  }
  static void compute(float* d, uint64_t a, uint64_t b, int add) {
    const int lane = emulated::current % 32, warp = emulated::current / 32 % 4;
    const auto value = [](uint64_t e, int row, int k) {
      const uint64_t unit = (e & 0x3fff) + (e >> 16 & 0x3fff) * (k / 8) + (e >> 32 & 0x3fff) * (row / 8) + row % 8;
      if (unit * 16 >= (227 << 10)) std::abort();
      return float(reinterpret_cast<const __half*>(emulated::dynamic_bytes)[unit * 8 + k % 8]);
    };
    float rows[2][16];
    for (int h = 0; h < 2; ++h)
      for (int k = 0; k < 16; ++k) rows[h][k] = value(a, 16 * warp + lane / 4 + 8 * h, k);
    for (int j = 0; j < N / 8; ++j)
      for (int e = 0; e < 2; ++e) {
        float column[16];
        for (int k = 0; k < 16; ++k) column[k] = value(b, 8 * j + 2 * (lane % 4) + e, k);
        for (int h = 0; h < 2; ++h) {
          double sum = add ? d[4 * j + 2 * h + e] : 0.0f;
          for (int k = 0; k < 16; ++k) sum += double(rows[h][k]) * column[k];
          const float near = float(sum);  // sums are cut off, not rounded
          d[4 * j + 2 * h + e] = std::fabs(near) > std::fabs(sum) ? std::nextafter(near, 0.0f) : near;
        }
      }
  }
};
}  // namespace warpsmith
"""


def emulator() -> str:
    text = (ROOT / "tests/kernel_templates/emulator.h").read_text()
    runnable = "  for (int t = 0; t < count; ++t) if (threads[t].wait == RUNNABLE) return true;\n  bool block"
    text = text.replace("  if (any) return true;\n  bool block", "  if (any) return true;\n" + runnable)
    macros = "\n#define __host__\n#define __grid_constant__\n#define __restrict__"
    return text.replace("__shared__ static thread_local", "__shared__ static thread_local" + macros, 1) + DEVICE


def translate(text: str) -> str:
    """C++ for the emulated device."""
    included = set()

    def include(match: re.Match[str]) -> str:
        name = match[1]
        if name in included or name in ("bulk_copy.cuh", "wgmma_f16.cuh"):
            return ""
        included.add(name)
        return inlined((HEADERS / name).read_text())

    def inlined(text: str) -> str:
        text = re.sub(r"#include <cuda\w*\.h>|#pragma once", "", text)
        return re.sub(r"#include <warpsmith/(\w+\.cuh)>", include, text)

    text = inlined(text)
    text = re.sub(r"extern __shared__ .*?(\w+)\[\];", r"unsigned char* const \1 = emulated::dynamic_bytes;", text)
    text = re.sub(r'asm volatile\("bar\.sync[^;]*;"[^;]*;', "emulated::bar_named(id, threads);", text)
    text = re.sub(r'asm volatile\("(setmaxnreg|fence\.proxy|wgmma\.fence)[^;]*;".*?\);', ";", text)
    for instruction, kind in (("wgmma", "products"), (r"cp\.async", "copies")):
        pending = f"emulated::{kind}[emulated::current]"
        text = re.sub(rf'asm volatile\("{instruction}\.commit.*?\);', f"{pending}.commit();", text)
        wait = rf'asm volatile\("{instruction}\.wait[^"]*" ::"n"\((.*?)\) : "memory"\);'
        text = re.sub(wait, rf"{pending}.wait(\1);", text)
    # Until a copy is waited for, its place holds what is not a number.
    copied = "std::memset(to, 0xff, 4); emulated::copies[emulated::current].add([=] { *to = exists ? *from : 0.0f; });"
    text = re.sub(r'asm volatile\("cp\.async\.ca.*?"memory"\);', copied, text, flags=re.S)
    found = re.findall(r"asm volatile\(.*", text)
    if found:
        raise SystemExit(f"not translated: {found[0]}")
    launch = r"([\w]+(?:<[\w, ]+>)?)<<<(.*?), ([\w+* ]+), ([\w.]+), [^>]*(?:<\w+>[^>]*)?>>>\((.*?)\);\n"
    return re.sub(launch, r"emulated::launch(dim3(\2), \3, \4, [=] { \1(\5); });\n", text, flags=re.S)


def build(text: str, *defines: str) -> ctypes.CDLL:
    name = f"{abs(hash((text, defines))):x}"
    source, library = WORK / f"{name}.cpp", WORK / f"{name}.so"
    source.write_text(emulator() + translate(text))
    flags = ["-std=c++17", "-O2", "-w", "-shared", "-fPIC", "-pthread", *(f"-D{each}" for each in defines)]
    subprocess.run(["g++", *flags, "-o", library, source], check=True)
    return ctypes.CDLL(str(library))


def sizes_of(task, sizes, out):
    """The extents that the entry points take: those of the input, then those of the output where they differ."""
    declared = SIGNATURE.search(TEXTS[task["name"]])[1].count("int64_t")
    extents = [*sizes, *out[2:]][:declared] if declared != len(sizes) else sizes
    return [ctypes.c_int64(each) for each in extents]


SIGNATURE = re.compile(r"int launch\((.*?)\) \{", re.S)
TEXTS = {}


def check(name: str, library: ctypes.CDLL, task, sizes, scale: float) -> bool:
    x = torch.randn(sizes[0], task["ci"], *sizes[1:]) * scale
    w = torch.randn(task["w"]) * 0.05
    b = torch.randn(task["w"][0]) if task["bias"] else None
    first = torch.randn(task["ci"], 1, 3, 3) if task["kind"] == "separable" else None
    if first is not None:
        wide = torch.nn.functional.conv2d(x.double(), first.double(), padding=1, groups=task["ci"])
        wanted = torch.nn.functional.conv2d(wide, w.double())
    else:
        wanted = ref(task, x.double(), w.double(), None if b is None else b.double())
    out = torch.full(form(task, sizes)[1], float("nan"))
    assert out.shape == wanted.shape
    extents = sizes_of(task, sizes, out.shape)
    split = hasattr(library, "workspace_bytes")
    if split:
        library.workspace_bytes.restype = ctypes.c_int64
    workspace = torch.full((library.workspace_bytes(*extents) + 16 if split else 32,), 0xAB, dtype=torch.uint8)
    pointers = [ctypes.c_void_p(t.data_ptr()) for t in (x, first, w, b, out) if t is not None]
    at = ctypes.c_void_p((workspace.data_ptr() + 15) // 16 * 16)
    state = library.launch(*pointers, *extents, at, None)
    error = ((out.double() - wanted).norm() / wanted.norm()).item()
    # Within the range, the plain kernel must have had nothing to repair: its results would hide what is wrong.
    flags = ctypes.c_uint32.from_address(at.value).value
    right = state == 0 and error < 1e-6 and (not split or scale != 1.0 or flags == 6)
    print(name, sizes, f"x {scale:g}: {error:.2g}", "" if right else "WRONG", flush=True)
    return right


# Sizes with more than one tile for each block, and odd ones; macros to try.
SIZES = {
    "conv_transpose3d_large": [(1, 5, 12, 14), (2, 3, 5, 9)],
    "conv_transpose3d_strided_dilated": [(2, 3, 9, 11)],
    "conv_transpose2d_oblong": [(2, 20, 48), (1, 13, 31)],
    "conv_transpose2d_strided_dilated": [(2, 12, 40), (1, 7, 9), (3, 5, 129)],
    "conv_transpose2d_grouped": [(1, 12, 20)],
    "conv_transpose3d_grouped": [(1, 3, 7, 13)],
    "conv_transpose1d": [(1, 1100), (2, 51)],
    "conv2d": [(1, 30, 38), (1, 9, 17)],
    "conv1d_dilated_strided": [(2, 1200), (3, 211), (1, 404)],
    "conv1d": [(2, 700), (3, 101)],
    "conv_transpose1d_dilated": [(2, 700), (1, 96), (1, 101)],
    "conv2d_pointwise": [(2, 14, 18), (3, 11, 13), (1, 30, 26)],
    "conv2d_depthwise_separable": [(2, 10, 14), (1, 7, 11)],
    "conv2d_stem": [(2, 63, 71), (1, 47, 39), (1, 14, 23)],
    "conv3d": [(2, 6, 12, 16), (1, 9, 11, 7), (1, 5, 40, 64), (3, 3, 3, 3)],
    "conv3d_3x3x1": [(2, 12, 14, 6), (1, 11, 9, 5), (1, 12, 20, 10)],
}


def main() -> None:
    torch.manual_seed(0)
    wrong = 0
    tasks = {task["name"]: task for task in TASKS}
    kinds = [("held", HELD, held), ("flat", FLAT, flat), ("strided", STRIDED, strided), ("fed", FED, fed), ("direct", WHOLE, whole)]
    for kind, names, make in kinds:
        for name in names:
            if sys.argv[1:] and f"{name}.{kind}" not in sys.argv[1:]:
                continue
            TEXTS[name] = make(name)
            for defines in VARIANTS.get((name, kind), [()]):
                library = build(TEXTS[name], *defines)
                for sizes in SIZES[name]:
                    wrong += not check(f"{name}.{kind} {' '.join(defines)}", library, tasks[name], sizes, 1.0)
            wrong += not check(f"{name}.{kind}", library, tasks[name], SIZES[name][-1], 1e5)
    sys.exit(wrong > 0)


WIDE = [("TUNE_ROWS=2", "TUNE_TRIPLE=1", "TUNE_FOLD=0"), ("TUNE_ROWS=3", "TUNE_TRIPLE=1", "TUNE_FOLD=0")]
VARIANTS = {
    ("conv1d_dilated_strided", "fed"): [(), ("TUNE_PRODUCERS=128",)],
    ("conv2d_pointwise", "fed"): [(), ("TUNE_BUFFERS=8", "TUNE_FED_STAGES=4"), ("TUNE_FED_STEPS=2", "TUNE_FED_STAGES=3")],
    ("conv_transpose3d_large", "held"): [(), ("TUNE_FOLD=14",), ("TUNE_ROWS=3", "TUNE_SPAN=400"), ("TUNE_ROWS=2", "TUNE_STEPS=3")],
    ("conv_transpose3d_strided_dilated", "held"): [
        ("TUNE_ROWS=2", "TUNE_TRIPLE=1", "TUNE_FOLD=27"),
        ("TUNE_ROWS=2", "TUNE_TRIPLE=1", "TUNE_FOLD=18"),
    ],
    ("conv_transpose2d_oblong", "held"): [("TUNE_FOLD=0",), ("TUNE_ROWS=3", "TUNE_FOLD=9")],
    ("conv_transpose1d", "held"): [*WIDE, ("TUNE_ROWS=2", "TUNE_TRIPLE=1", "TUNE_FOLD=12")],
    ("conv2d", "held"): WIDE,
    ("conv3d", "held"): WIDE,
    ("conv3d_3x3x1", "held"): WIDE,
    ("conv2d_stem", "strided"): [("TUNE_ROWS=2", "TUNE_FOLD=9"), ("TUNE_ROWS=3", "TUNE_TRIPLE=1", "TUNE_FOLD=0")],
    ("conv2d_stem", "held"): [("TUNE_ROWS=2", "TUNE_FOLD=24")],
    ("conv_transpose2d_strided_dilated", "held"): [("TUNE_ROWS=2", "TUNE_FOLD=0")],
    ("conv_transpose2d_strided_dilated", "direct"): [(), ("TUNE_PIXELS=2", "TUNE_WARPS=16", "TUNE_CHANNELS=8")],
    ("conv3d", "flat"): [(), ("TUNE_PRODUCERS=128", "TUNE_AHEAD=3"), ("TUNE_STAGES=2",)],
    ("conv3d_3x3x1", "flat"): [(), ("TUNE_PRODUCERS=128", "TUNE_AHEAD=4"), ("TUNE_STAGES=1",)],
    ("conv_transpose2d_grouped", "held"): [("TUNE_ROWS=2", "TUNE_FOLD=0")],
}

if __name__ == "__main__":
    main()
