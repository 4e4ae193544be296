"""Try kernels that nobody here wrote: ``python -m tests.fuzz.outside FOLDER [--include FOLDER]...``

Takes the device code out of every ``.cu`` file below a folder, compiles it with NVRTC, makes the
engine's code of each kernel and launches it with plausible arguments. Prints a table of what ran
and what did not, and why. Each file has a process of its own. Nothing here is part of the tests:
the files stay outside the repository.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from virtualgpu.compile import nvrtc
from virtualgpu.compile.ptx import ir, parser
from virtualgpu.cuda_errors import KernelFault
from virtualgpu.engine import PackedLaunch, Program, RunOptions
from virtualgpu.engine.lower import codegen
from virtualgpu.engine.machine import jit
from virtualgpu.launch.signature import source_params
from virtualgpu.model.memory import DeviceMemory

TARGET = 90
ARENA_BYTES = 1 << 30
BUFFER_BYTES = 4 << 20
SHAPES = (
    ((2, 2, 1), (16, 16, 1)),
    ((4, 1, 1), (128, 1, 1)),
    ((2, 1, 1), (32, 1, 1)),
    ((1, 1, 1), (512, 1, 1)),
)
DYNAMIC_SHARED_BYTES = 16 << 10
FILE_TIMEOUT_S = 240
MOST_DROPPED = 40
WATCHDOG_S = 5.0

# What NVRTC finds or has built in; everything else a file includes is for the host.
_DEVICE_HEADERS = re.compile(
    r"cooperative_groups|cuda_fp16|cuda_bf16|cuda/|mma\.h|cuda_pipeline|math_constants|vector_types|cuda_fp8"
)
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*[<"]([^>"]+)[>"].*$', re.M)
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.S)
_KEPT = re.compile(
    r"__global__|__device__|__constant__|__shared__|\bstruct\b|\bunion\b|\benum\b|\btypedef\b|\busing\b|\bconstexpr\b|"
    r"^\s*(?:static\s+)?const\b|^\s*namespace\s+\w+\s*="
)
_TYPE = re.compile(r"\s*(?:template\s*<[^{]*?>\s*)?(?:typedef|struct|union|enum|class)\b")
_KERNEL = re.compile(
    r"__global__[^;{(]*?(?:__launch_bounds__\s*\([^)]*\))?[^;{(]*?\b(?!__launch_bounds__)(\w+)\s*\("
)
_LAUNCH = re.compile(r"\b(\w+)\s*<([\w\s,*]+)>\s*<<<")
_PREFIX = """
typedef signed char int8_t; typedef unsigned char uint8_t; typedef short int16_t;
typedef unsigned short uint16_t; typedef int int32_t; typedef unsigned int uint32_t;
typedef long long int64_t; typedef unsigned long long uint64_t; typedef unsigned int uint;
typedef unsigned char uchar; typedef unsigned short ushort; typedef unsigned long ulong;
#ifndef M_PI
#define M_PI 3.14159265358979323846
#endif
#define FLT_MAX 3.402823466e+38F
#define FLT_MIN 1.175494351e-38F
#define DBL_MAX 1.7976931348623157e+308
#define INFINITY __int_as_float(0x7f800000)
#define INT_MAX 2147483647
#define UINT_MAX 4294967295U
"""


# cuBLAS's header is for the host, but brings the types of half and less precision with it.
_CUBLAS_TYPES = "".join(f"\n#include <cuda_{kind}.h>\n" for kind in ("fp16", "bf16", "fp8"))


@dataclass(slots=True)
class Outcome:
    """How far a kernel came: ``compile``, ``translate``, ``launch`` or ``ran``."""

    file: str
    kernel: str
    stage: str
    note: str = ""


def with_includes(path: Path, folders: list[Path], visited: set[Path]) -> str:
    """A file's text with the files it includes from its own project, each once."""
    text = _COMMENT.sub(" ", path.read_text(encoding="utf-8", errors="replace")).replace("\\\n", " ")

    def included(match: re.Match[str]) -> str:
        for folder in (path.parent, *folders):
            names = (folder / match[1]).resolve()
            if names.is_file():
                if names in visited:
                    return ""
                visited.add(names)
                return with_includes(names, folders, visited)
        if "cublas" in match[1]:
            return _CUBLAS_TYPES
        return match[0] if _DEVICE_HEADERS.search(match[1]) else ""

    return _INCLUDE.sub(included, text)


def pieces(text: str) -> list[str]:
    """Top-level declarations, definitions and preprocessor lines, in order."""
    out: list[str] = []
    current: list[str] = []
    depth = 0
    for line in text.split("\n"):
        if depth == 0 and line.lstrip().startswith("#"):
            out += ["".join(current), line + "\n"]
            current = []
            continue
        for part in re.split(r"([{};])", line + "\n"):
            if part == "}" and depth == 0:  # the end of an extern "C" block
                continue
            current.append(part)
            depth += {"{": 1, "}": -1}.get(part, 0)
            whole = "".join(current)
            if depth == 0 and part in ("}", ";") and not re.match(r'\s*extern\s+"C"\s*\{', whole):
                goes_on = part == "}" and (_TYPE.match(whole) or whole.split("{")[0].rstrip().endswith("="))
                if not goes_on:
                    out.append(whole)
                    current = []
    return [*out, "".join(current)]


def device_pieces(text: str) -> list[str]:
    """What of a source file concerns the device, as far as one can tell from its text."""
    text = re.sub(r'extern\s+"C"\s*\{', "", text)
    return [p for p in pieces(text) if p.lstrip().startswith("#") or _KEPT.search(p)]


def without_host_types(parts: list[str], path: Path, folders: list[Path]) -> str:
    """The pieces as one source, without those the compiler complains of that are no kernels."""
    parts = [_PREFIX, *parts]
    for _ in range(MOST_DROPPED):
        code = "\n".join(parts)
        try:
            nvrtc.compile_ptx(code, target=TARGET, options=options_for(path, folders))
        except nvrtc.NvrtcCompileError as error:
            match = re.search(r"kernel\.cu\((\d+)\): error", error.log)
            position = piece_at(parts, int(match[1])) if match else 0
            if not position or "__global__" in parts[position] or parts[position].lstrip().startswith("#"):
                break
            del parts[position]
        else:
            break
    return "\n".join(parts)


def piece_at(parts: list[str], line: int) -> int:
    """Number of the piece that a line of the joined source lies in."""
    for number, piece in enumerate(parts):
        line -= piece.count("\n") + 1
        if line <= 0:
            return number
    return 0


def options_for(path: Path, folders: list[Path]) -> tuple[str, ...]:
    return (*nvrtc.CUPY_OPTIONS, f"-I{path.parent}", *(f"-I{folder}" for folder in folders))


def kernels_of(code: str) -> dict[str, bool]:
    """Names of the kernels in a source, and whether each is a template."""
    kernels: dict[str, bool] = {}
    for match in _KERNEL.finditer(code):
        before = re.split(r"[;}]", code[: match.start()])[-1]
        kernels[match[1]] = "template" in before
    return kernels


def name_expressions(code: str, whole: str) -> list[str]:
    """Kernels to compile: plain ones, and template instances that the host code launches."""
    launched = {match[1]: match[2] for match in _LAUNCH.finditer(whole)}
    out = []
    for name, is_template in kernels_of(code).items():
        if not is_template:
            out.append(name)
        elif name in launched and not re.search(r"\b(?:T|[a-z_]+[Ss]ize|block|threads)\b", launched[name]):
            out.append(f"{name}<{launched[name]}>")
        else:
            out += [f"{name}<{argument}>" for argument in ("float", "16", "32", "int")]
    return out


def compiled(code: str, expressions: list[str], path: Path, folders: list[Path]) -> nvrtc.PtxImage:
    """The file's PTX; instances that do not compile are left out one by one."""
    options = options_for(path, folders)
    targets = list(expressions)
    while True:
        try:
            return nvrtc.compile_ptx(code, target=TARGET, options=options, name_expressions=targets)
        except nvrtc.NvrtcCompileError as caught:
            error = caught
        refused = re.search(r'__nv_name_map\(\d+\): error: identifier "(\w+)" is undefined', error.log)
        names = [e for e in targets if refused and e.split("<")[0] != refused[1]]
        if not names or names == targets:
            break
        targets = names
    plain = [e for e in targets if "<" not in e]
    for single in [*([plain] if plain else []), *([e] for e in targets if "<" in e)]:
        with contextlib.suppress(nvrtc.NvrtcCompileError):
            return nvrtc.compile_ptx(code, target=TARGET, options=options, name_expressions=single)
    raise error


def argument(param: ir.Param, type_text: str, memory: DeviceMemory) -> bytes:
    """A plausible value: a buffer for a pointer, a small number, zeros for a structure."""
    if param.type in ("u64", "b64") and (not type_text or "*" in type_text or "[" in type_text):
        address = memory.malloc(BUFFER_BYTES)
        memory.track(address, BUFFER_BYTES, f"buffer for {param.name}")
        words = memory.view(address, BUFFER_BYTES)
        if "float" in type_text or "double" in type_text:
            kind = np.float64 if "double" in type_text else np.float32
            words.view(kind)[:] = np.linspace(0.1, 1.0, words.size // np.dtype(kind).itemsize)
        else:
            words.view(np.uint32)[:] = np.arange(words.size // 4, dtype=np.uint32) % 16
        return address.to_bytes(8, "little")
    if "float" in type_text or param.type == "f32":
        return np.float32(0.5).tobytes()
    if "double" in type_text or param.type == "f64":
        return np.float64(0.5).tobytes()
    if param.size_bytes <= 8:
        return (16).to_bytes(param.size_bytes, "little")
    return bytes(param.size_bytes)


def launch(program: Program, entry: ir.Function, code: str, kernel: str) -> tuple[str, str]:
    """Launch in a few shapes until one runs; the stage reached and why the last failed."""
    known = source_params(code, kernel) or ()
    faults: list[str] = []
    for grid, block in SHAPES:
        threads = block[0] * block[1] * block[2]
        if entry.max_threads and threads > entry.max_threads:
            continue
        memory = DeviceMemory(ARENA_BYTES)
        params = bytearray(max(entry.param_bytes, 8))
        for number, param in enumerate(entry.params):
            text = known[number].type_text if len(known) == len(entry.params) else ""
            value = argument(param, text, memory)[: param.size_bytes]
            params[param.offset : param.offset + len(value)] = value
        fresh = Program(program.ptx, code)
        try:
            fresh.launch(
                PackedLaunch(
                    entry.name, grid, block, bytes(params), DYNAMIC_SHARED_BYTES, "this_grid" in code
                ),
                memory,
                RunOptions(watchdog_s=WATCHDOG_S, stdout=lambda text: None),
            )
        except KernelFault as fault:
            faults.append(f"{type(fault).__name__}: {fault}".replace("\n", " ")[:200])
        else:
            return "ran", f"grid {grid}, block {block}"
    return "launch", faults[-1] if faults else "no shape fits its launch bounds"


def first_error(log: str) -> str:
    lines = [line for line in log.splitlines() if "error" in line]
    return (lines or [log])[0][:200]


def try_file(path: Path, folders: list[Path]) -> list[Outcome]:
    whole = with_includes(path, folders, {path.resolve()})
    parts = device_pieces(whole)
    names = kernels_of("\n".join(parts))
    if not names:
        return []
    code = without_host_types(parts, path, folders)
    try:
        image = compiled(code, name_expressions(code, whole), path, folders)
    except nvrtc.NvrtcCompileError as error:
        return [Outcome(path.name, name, "compile", first_error(error.log)) for name in names]
    module = parser.parse(image.ptx)
    program = Program(image.ptx, code)
    out = []
    for symbol, entry in module.entries.items():
        kernel = next((n for n in sorted(names, key=len, reverse=True) if n in symbol), symbol)
        try:
            jit.Code(codegen.generate(module, symbol, count=True, trace=False).text)
        except Exception as error:
            reason = f"{type(error).__name__}: {error}".replace("\n", " ")[:200]
            out.append(Outcome(path.name, kernel, "translate", reason))
            continue
        try:
            stage, note = launch(program, entry, code, kernel)
        except Exception as error:
            stage = "launch"
            note = f"{type(error).__name__}: {error}".replace("\n", " ")[:200]
        out.append(Outcome(path.name, kernel, stage, note))
    return out


def in_process(path: Path, folders: list[Path]) -> list[Outcome]:
    command = [sys.executable, "-m", "tests.fuzz.outside", str(path), "--one"]
    for folder in folders:
        command += ["--include", str(folder)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=FILE_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        return [Outcome(path.name, "?", "crash", f"took longer than {FILE_TIMEOUT_S} s")]
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [""])[-1]
        return [Outcome(path.name, "?", "crash", f"status {done.returncode}: {last}"[:200])]
    return [Outcome(**row) for row in json.loads(done.stdout.splitlines()[-1])]


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("folder", type=Path)
    arguments.add_argument("--include", type=Path, action="append", default=[])
    arguments.add_argument("--one", action="store_true", help="a single file, in this process")
    chosen = arguments.parse_args()
    if chosen.one:
        print(json.dumps([asdict(outcome) for outcome in try_file(chosen.folder, chosen.include)]))
        return
    files = sorted(chosen.folder.rglob("*.cu"))
    with ThreadPoolExecutor(2) as pool:
        rows = [row for part in pool.map(lambda f: in_process(f, chosen.include), files) for row in part]
    for row in sorted(rows, key=lambda row: (row.stage, row.file)):
        print(f"{row.stage:10} {row.file:32.32} {row.kernel:36.36} {row.note}")
    print(f"\n{len(rows)} kernels in {len(files)} files: {dict(Counter(row.stage for row in rows))}")


if __name__ == "__main__":
    main()
