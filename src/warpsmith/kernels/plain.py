"""Plain kernels, right for every size and not optimised, to start a search from, where no template writes one.

For convolutions, pooling and scans a thread computes one element of the output (of a scan: one row), straight from the
definition. C++ and CUDA C++ share the text of that function; only what calls it differs. `cuda_plain/NAME.cu` is the
plain CUDA kernel of the task NAME of a suite.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from warpsmith.kernels.form_convolution import Convolution, read_convolution
from warpsmith.kernels.form_pool import read_pooling
from warpsmith.kernels.form_scan import read_scan
from warpsmith.kernels.form_task import FormKernel, FormTask, NotThisForm, declared, require, text, value_name
from warpsmith.model.contract import Contract
from warpsmith.model.task import Outline, Task

FILES = Path(__file__).resolve().parent / "cuda_plain"
"""Kernels written by hand for one task each."""

_PLACE = """  const int64_t o2 = i % f.out[2];
  const int64_t o1 = i / f.out[2] % f.out[1];
  const int64_t o0 = i / (f.out[2] * f.out[1]) % f.out[0];
  i /= f.out[0] * f.out[1] * f.out[2];"""

_CONVOLUTION = """struct Convolution {
  int64_t images, in[3], out[3];
  int kernel[3], stride[3], padding[3], dilation[3], groups, ci, co;  // ci, co: channels of a group
  bool transposed;
};

// The place in the input that tap k of the filter meets at place o of the output; -1 for none.
FUNCTION int64_t meets(const Convolution& f, int axis, int64_t o, int k) {
  int64_t p = o * f.stride[axis] - f.padding[axis] + int64_t(k) * f.dilation[axis];
  if (f.transposed) {
    p = o + f.padding[axis] - int64_t(k) * f.dilation[axis];
    if (p < 0 || p % f.stride[axis]) return -1;
    p /= f.stride[axis];
  }
  return p >= 0 && p < f.in[axis] ? p : -1;
}

FUNCTION float convolved(const Convolution& f, const float* x, const float* w, const float* bias, int64_t i) {
PLACE
  const int64_t channels = int64_t(f.groups) * f.co, channel = i % channels, image = i / channels;
  const int64_t group = channel / f.co;
  float sum = bias ? bias[channel] : 0.f;
  for (int64_t c = 0; c < f.ci; ++c) {
    const float* plane = x + (image * f.groups * f.ci + group * f.ci + c) * f.in[0] * f.in[1] * f.in[2];
    const int64_t filter = f.transposed ? (group * f.ci + c) * f.co + channel % f.co : channel * f.ci + c;
    const float* taps = w + filter * f.kernel[0] * f.kernel[1] * f.kernel[2];
    for (int a = 0; a < f.kernel[0]; ++a) {
      const int64_t p0 = meets(f, 0, o0, a);
      for (int b = 0; p0 >= 0 && b < f.kernel[1]; ++b) {
        const int64_t p1 = meets(f, 1, o1, b);
        for (int k = 0; p1 >= 0 && k < f.kernel[2]; ++k) {
          const int64_t p2 = meets(f, 2, o2, k);
          if (p2 < 0) continue;
          sum += plane[(p0 * f.in[1] + p1) * f.in[2] + p2] * taps[(a * f.kernel[1] + b) * f.kernel[2] + k];
        }
      }
    }
  }
  return sum;
}"""

_POOLING = """struct Windows {
  int64_t in[3], out[3];
  int kernel[3], stride[3], padding[3], dilation[3];
  bool largest, counts_padding;
  int divisor;  // 0: the number of elements
};

FUNCTION float pooled(const Windows& f, const float* x, int64_t i) {
PLACE
  const float* plane = x + i * f.in[0] * f.in[1] * f.in[2];
  const int64_t place[3] = {o0, o1, o2};
  int64_t begin[3], padded = 1, found = 0;
  for (int axis = 0; axis < 3; ++axis) {
    begin[axis] = place[axis] * f.stride[axis] - f.padding[axis];
    const int64_t end = begin[axis] + f.kernel[axis], last = f.in[axis] + f.padding[axis];
    padded *= (end < last ? end : last) - begin[axis];
  }
  float best = -INFINITY, sum = 0.f;
  for (int a = 0; a < f.kernel[0]; ++a) {
    for (int b = 0; b < f.kernel[1]; ++b) {
      for (int k = 0; k < f.kernel[2]; ++k) {
        const int64_t p0 = begin[0] + a * f.dilation[0], p1 = begin[1] + b * f.dilation[1];
        const int64_t p2 = begin[2] + k * f.dilation[2];
        if (p0 < 0 || p0 >= f.in[0] || p1 < 0 || p1 >= f.in[1] || p2 < 0 || p2 >= f.in[2]) continue;
        const float value = plane[(p0 * f.in[1] + p1) * f.in[2] + p2];
        if (value > best || value != value) best = value;
        sum += value;
        ++found;
      }
    }
  }
  if (f.largest) return best;
  return sum / float(f.divisor ? f.divisor : f.counts_padding ? padded : found);
}"""

_SCAN = """FUNCTION void scanned(const float* x, const bool* mask, float* out, int64_t cols, int64_t row) {
  double total = IDENTITY;
  for (int64_t step = 0; step < cols; ++step) {
    const int64_t at = row * cols + (REVERSE ? cols - 1 - step : step);
    if (EXCLUSIVE) out[at] = float(total);
    if (!mask || mask[at]) total = total OPERATOR double(x[at]);
    if (!EXCLUSIVE) out[at] = float(total);
  }
}"""


def plain_kernel(task: Task, contract: Contract, outline: Outline) -> FormKernel | None:
    """The plain kernel of a convolution, a pooling, a scan or a task with a file; None for other tasks."""
    for write in (_convolutions, _pooling, _scan):
        try:
            return write(FormTask(task, contract, outline))
        except NotThisForm:
            continue
    return _from_file(task, contract)


def _from_file(task: Task, contract: Contract) -> FormKernel | None:
    """The file for a task of this name; None if its entry point is not that of the contract."""
    path = FILES / f"{task.name}.cu"
    if contract.backend != "cuda" or not task.name.isidentifier() or not path.is_file():
        return None
    source = path.read_text()
    entry = re.search(r'extern "C" int launch\((.*?)\)', source, re.DOTALL)
    same = entry is not None and " ".join(entry[1].split()) == declared(contract.arguments)
    return FormKernel(f"plain {task.name}", source) if same else None


def _convolutions(task: FormTask) -> FormKernel:
    """One convolution, or one after the other, with the first result in the workspace."""
    require(1 <= len(task.steps) <= 2 and all(step.name == "convolution" for step in task.steps))
    first, *rest = task.steps
    found = [read_convolution(task, first, task.tensor(first.argument(0)).dims)]
    if rest:
        require(value_name(rest[0].argument(0)) == first.result.name)
        found.append(read_convolution(task, rest[0], first.result.dims))
    images = [task.pointer(first.argument(0)), f"static_cast<const float*>({task.workspace})"]
    targets = [f"static_cast<float*>({task.workspace})"] if rest else []
    lines, between = [], ""
    for number, (each, image, target) in enumerate(zip(found, images, [*targets, task.out], strict=False)):
        bias = task.pointer(each.bias) if each.bias is not None else "nullptr"
        form = f"form{number}_"
        lines.append(f"const Convolution {form} = {_form(task, each)};")
        count = f"{form}.images * {form}.groups * {form}.co * {form}.out[0] * {form}.out[1] * {form}.out[2]"
        given = f"{form}, {image}, {task.pointer(each.weight)}, {bias}, {target}"
        lines.append(_each(task, "plain_elements", count, given))
        between = between or f"const Convolution f_ = {_form(task, each)};"
    room = "return 4 * f_.images * f_.groups * f_.co * f_.out[0] * f_.out[1] * f_.out[2];"
    parameters = "const Convolution f, const float* x, const float* w, const float* bias, float* out"
    body = "out[i] = convolved(f, x, w, bias, i);"
    return FormKernel(
        "plain convolution",
        text(
            "// Convolution from its definition: a thread for each element of the output.",
            _function(task, _CONVOLUTION),
            _loop(task, "plain_elements", parameters, body),
            task.workspace_bytes(f"{between} {room}") if rest else "",
            task.launch(*lines, _end(task)),
        ),
    )


def _form(task: FormTask, found: Convolution) -> str:
    extents = [task.extent(dim) for dim in found.extents]
    out = []
    for axis, extent in enumerate(extents):
        reach = found.dilation[axis] * (found.kernel[axis] - 1) + 1
        padding, stride = found.padding[axis], found.stride[axis]
        if found.transposed:
            out.append(f"({extent} - 1) * {stride} + {reach + found.output_padding[axis] - 2 * padding}")
        else:
            out.append(f"({extent} + {2 * padding - reach}) / {stride} + 1")
    options = [
        task.extent(found.batch),
        *(_three(values, missing) for values, missing in ((extents, 1), (out, 1), (found.kernel, 1))),
        *(_three(values, missing) for values, missing in ((found.stride, 1), (found.padding, 0), (found.dilation, 1))),
        *map(str, (found.groups, found.ci, found.co)),
        "true" if found.transposed else "false",
    ]
    return f"{{{', '.join(options)}}}"


def _pooling(task: FormTask) -> FormKernel:
    found = read_pooling(task)
    options = [
        _three([task.extent(dim) for dim in found.dims[2:]], 1),
        _three([task.extent(dim) for dim in found.out[2:]], 1),
        *(_three(values, missing) for values, missing in ((found.kernel, 1), (found.stride, 1), (found.padding, 0))),
        _three(found.dilation, 1),
        *("true" if each else "false" for each in (found.largest, found.counts_padding)),
        str(found.divisor),
    ]
    count = task.product(found.out)
    return FormKernel(
        "plain pooling",
        text(
            "// Pooling from its definition: a thread for each element of the output.",
            _function(task, _POOLING),
            _loop(task, "plain_elements", "const Windows f, const float* x, float* out", "out[i] = pooled(f, x, i);"),
            task.launch(
                f"const Windows windows_ = {{{', '.join(options)}}};",
                _each(task, "plain_elements", count, f"windows_, {task.pointer(found.image)}, {task.out}"),
                _end(task),
            ),
        ),
    )


def _scan(task: FormTask) -> FormKernel:
    found = read_scan(task)
    require(found.is_last)
    words = {
        "IDENTITY": "0.0" if found.operation == "cumsum" else "1.0",
        "OPERATOR": "+" if found.operation == "cumsum" else "*",
        "REVERSE": "true" if found.reverse else "false",
        "EXCLUSIVE": "true" if found.exclusive else "false",
    }
    function = _SCAN
    for word, value in words.items():
        function = function.replace(word, value)
    # A masked element counts as zero, which matters for products only.
    require(not found.mask or found.operation == "cumsum")
    parameters = "const float* x, const bool* mask, float* out, int64_t cols"
    given = f"{task.pointer(found.source)}, {found.mask or 'nullptr'}, {task.out}, {task.extent(found.dims[-1])}"
    return FormKernel(
        "plain scan",
        text(
            "// A running sum or product from its definition: a thread for each row.",
            _function(task, function),
            _loop(task, "plain_rows", parameters, "scanned(x, mask, out, cols, i);"),
            task.launch(_each(task, "plain_rows", task.product(found.dims[:-1]), given), _end(task)),
        ),
    )


# --- what differs between C++ and CUDA C++ ---


def _function(task: FormTask, body: str) -> str:
    head = "static inline" if task.on_cpu else "static __device__"
    return body.replace("PLACE", _PLACE).replace("FUNCTION", head)


def _loop(task: FormTask, name: str, parameters: str, body: str) -> str:
    """What calls the function for every element."""
    if task.on_cpu:
        return (
            f"static void {name}(int64_t count, {parameters}) {{\n#pragma omp parallel for\n"
            f"  for (int64_t i = 0; i < count; ++i) {body}\n}}"
        )
    return (
        f"__global__ void {name}(int64_t count, {parameters}) {{\n"
        "  const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;\n"
        f"  if (i < count) {body.rstrip(';')};\n}}"
    )


def _each(task: FormTask, name: str, count: str, arguments: str) -> str:
    """The call of that loop, or the launch of that kernel."""
    if task.on_cpu:
        return f"{name}({count}, {arguments});"
    return (
        f"if (const int64_t count_ = {count}) {{\n"
        "    const unsigned blocks_ = unsigned((count_ + 255) / 256), threads_ = 256, shared_ = 0;\n"
        f"    const cudaStream_t stream_ = static_cast<cudaStream_t>({task.stream});\n"
        f"    {name}<<<blocks_, threads_, shared_, stream_>>>(count_, {arguments});\n  }}"
    )


def _end(task: FormTask) -> str:
    return "return 0;" if task.on_cpu else "return static_cast<int>(cudaGetLastError());"


def _three(values: Sequence[object], missing: int) -> str:
    """One entry per axis, for three axes."""
    return "{" + ", ".join(map(str, [*[missing] * (3 - len(values)), *values])) + "}"
