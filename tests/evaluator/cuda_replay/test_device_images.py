from __future__ import annotations

import _ctypes
import os
import random
import struct
import subprocess
from pathlib import Path

import pytest

from warpsmith.backends.toolchain import find_nvcc
from warpsmith.evaluator.cuda_replay.device_images import DeviceImage, MalformedImage, Variable, read_images

SOURCE = """
__constant__ float table[64];
__device__ int counter = 7;
static __device__ double kept[4];
namespace { __global__ void hidden(float* out) { out[0] = table[1] + kept[2]; } }
__device__ __noinline__ float helper(float v) { return v * counter; }
template <int N> __global__ void scaled(const float* x, float* out) { kept[0] = out[N] = helper(x[N]); }
extern "C" int launch(const float* x, float* out) {
  hidden<<<1, 1>>>(out);
  scaled<3><<<1, 32>>>(x, out);
  return 0;
}
"""
_FLAGS = ("-std=c++17", "-shared", "-Xcompiler", "-fPIC", "-cudart", "none", "-x", "cu")
_ARCHITECTURES = ("-gencode=arch=compute_90a,code=sm_90a", "-gencode=arch=compute_80,code=sm_80")
_PART_FLAGS_AT = 16 + 40  # in a fat binary: behind its header, in the header of its first part
_ZSTD = 0x8000


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A shared object with device code for two architectures."""
    folder = tmp_path_factory.mktemp("fatbin")
    compiler = find_nvcc(os.environ)
    assert compiler is not None, "tests that need it are marked"
    (folder / "made.cu").write_text(SOURCE)
    command = [*compiler.command, *compiler.search_flags, *_FLAGS, *_ARCHITECTURES, "-o", "made.so", "made.cu"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    return (folder / "made.so").read_bytes()


def only(images: tuple[DeviceImage, ...]) -> DeviceImage:
    (image,) = images
    return image


@pytest.mark.nvcc
def test_kernels_and_variables_are_named(built: bytes) -> None:
    image = only(read_images(built))
    assert image.legible
    assert any("hidden" in name for name in image.kernels)  # in a namespace without a name, and launched all the same
    assert any("scaledILi3E" in name for name in image.kernels)
    assert not any("helper" in name for name in image.kernels)  # called, never launched
    assert image.variables == (
        Variable("counter", 4, constant=False),
        Variable("kept", 32, constant=False),
        Variable("table", 256, constant=True),
    )
    assert built.count(image.data) == 1


@pytest.mark.nvcc
def test_a_cubin_alone_is_an_image_of_its_own(built: bytes) -> None:
    whole = only(read_images(built))
    cubin = whole.data[whole.data.index(b"\x7fELF") :]  # the first of two; a reader stops where its tables end
    image = only(read_images(cubin))
    assert image.kernels == whole.kernels
    assert image.variables == whole.variables
    assert image.digest != whole.digest


@pytest.mark.nvcc
def test_a_compressed_part_is_handed_on_unread(built: bytes) -> None:
    start = built.index(only(read_images(built)).data)
    changed = bytearray(built)
    (flags,) = struct.unpack_from("<Q", changed, start + _PART_FLAGS_AT)
    struct.pack_into("<Q", changed, start + _PART_FLAGS_AT, flags | _ZSTD)
    image = only(read_images(bytes(changed)))
    assert not image.legible
    assert image.kernels  # of the other architecture


@pytest.mark.nvcc
def test_damage_is_always_said(built: bytes) -> None:
    """A candidate's file may hold anything: it is read, or refused, and nothing else."""
    image = only(read_images(built))
    start = built.index(image.data)
    rng = random.Random(5)
    refused = 0
    for _ in range(300):
        changed = bytearray(built)
        for _ in range(rng.choice((1, 4))):
            at = rng.choice((rng.randrange(64), start + rng.randrange(200), rng.randrange(len(built))))
            changed[at] = rng.randrange(256)
        whole = bytes(changed[: rng.choice((len(built), rng.randrange(len(built))))])
        try:
            read_images(whole)
        except MalformedImage:
            refused += 1
    assert refused > 100


def test_an_object_without_device_code_has_no_image() -> None:
    assert read_images(Path(_ctypes.__file__).read_bytes()) == ()


@pytest.mark.parametrize("data", [b"", b"\x7fELF", b"#!/bin/sh\n", b"\x7fELF\x02\x01" + bytes(10)])
def test_what_is_no_object_is_refused(data: bytes) -> None:
    with pytest.raises(MalformedImage, match="cannot be read"):
        read_images(data)
