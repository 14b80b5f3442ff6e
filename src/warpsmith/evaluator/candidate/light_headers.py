"""Short forms of PyTorch's C++ headers for one extension, because compilers need most of their time for the long ones.

`torch/extension.h` declares all operators, neural network modules, optimisers and more. The short forms declare
tensors, the operators that the sources name, and the bindings for Python. They are found before PyTorch's own headers;
sources that cannot be compiled with them are compiled with PyTorch's own. Nothing is kept for other extensions, so
nothing can be out of date, and processes need not wait for each other. (nvcc has no precompiled headers.)
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

_WORD = re.compile(r"\b[a-zA-Z_]\w*")
_INNER_NAMESPACE = re.compile(r"\btorch\s*::\s*[a-z]\w*\s*::")  # torch::nn, torch::autograd: only PyTorch's own have it
_HEAVY = re.compile(  # of ATen/ATen.h and torch/types.h
    r"#include <(?:ATen/ATen|ATen/Functions|ATen/NativeFunctions|torch/csrc/autograd/[\w/]+|torch/library)\.h>"
)
_ON_DEMAND = {"TORCH_LIBRARY": "torch/library.h", "parallel_for": "ATen/Parallel.h", "Parallel": "ATen/Parallel.h"}
_STANDARD = (
    *("algorithm", "array", "cmath", "cstdint", "cstring", "functional", "iostream", "limits", "map", "memory"),
    *("optional", "sstream", "stdexcept", "string", "tuple", "type_traits", "unordered_map", "utility", "vector"),
)
_FIRST = "// Of PyTorch's headers, what this extension names; written by Warpsmith.\n#pragma once\n"
_BOUND = _FIRST + "#include <torch/types.h>\n#include <torch/csrc/Exceptions.h>\n#include <torch/csrc/utils/pybind.h>\n"
_UNBOUND = _FIRST + "#include <torch/types.h>\n"


def write_light_headers(folder: Path, torch_include: Path, sources: Iterable[str]) -> bool:
    """Write the short forms into a folder; False if these sources need PyTorch's own headers."""
    text = "\n".join(sources)
    if _INNER_NAMESPACE.search(text):
        return False
    try:
        types = (torch_include / "torch/csrc/api/include/torch/types.h").read_text(encoding="utf-8")
        tensors = (torch_include / "ATen/ATen.h").read_text(encoding="utf-8")
        names = set(_WORD.findall(text))
        operators = sorted(name for name in names if (torch_include / "ATen/ops" / f"{name}.h").is_file())
        needed = [f"ATen/ops/{name}.h" for name in operators]
        needed += dict.fromkeys(header for word, header in _ON_DEMAND.items() if any(n.startswith(word) for n in names))
        head = "#define AT_PER_OPERATOR_HEADERS\n" + "".join(f"#include <{name}>\n" for name in (*_STANDARD, *needed))
        place = folder / "torch"
        place.mkdir(parents=True)
        (place / "types.h").write_text(_FIRST + head + _HEAVY.sub("", f"{tensors}\n{types}"), encoding="utf-8")
        for name, content in {"extension": _BOUND, "torch": _UNBOUND, "all": _UNBOUND}.items():
            (place / f"{name}.h").write_text(content, encoding="utf-8")
    except OSError:
        return False
    return bool(operators) or "torch" in names or "at" in names
