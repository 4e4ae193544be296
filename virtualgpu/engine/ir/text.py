"""Short pieces of LLVM IR text that several support functions use."""

from __future__ import annotations

from virtualgpu.engine.ir import layout

# The number of each lane.
LANE_INDICES, LANE_INDICES_I32 = (
    "<" + ", ".join(f"{llvm_type} {lane}" for lane in range(layout.LANES)) + ">"
    for llvm_type in ("i64", "i32")
)

# The bit of each lane in a lane mask.
LANE_BITS = "<" + ", ".join(f"i32 {1 << lane}" for lane in range(layout.LANES)) + ">"


def make_lane_mask(mask: str, result: str) -> str:
    """Return LLVM text that converts a lane mask to an i1 vector. Each lane tests its own bit.

    Without AVX-512, LLVM would convert a bitcast bit by bit.
    """
    return (
        make_splat("i32", mask, f"{result}.all")
        + f"  {result}.own = and <32 x i32> {result}.all, {LANE_BITS}\n"
        + f"  {result} = icmp eq <32 x i32> {result}.own, {LANE_BITS}\n"
    )


def make_splat(llvm_type: str, scalar: str, result: str) -> str:
    """Return LLVM text that copies one scalar to all 32 lanes of the vector `result`."""
    return (
        f"  {result}.s = insertelement <32 x {llvm_type}> poison, {llvm_type} {scalar}, i32 0\n"
        f"  {result} = shufflevector <32 x {llvm_type}> {result}.s, <32 x {llvm_type}> poison, "
        f"<32 x i32> zeroinitializer\n"
    )


def make_field_pointer(name: str, result: str) -> str:
    """Return LLVM text that computes the address of a field in the context block."""
    return f"  {result} = getelementptr i8, ptr %ctx, i64 {layout.get_field_offset(name)}\n"


def make_field_load(name: str, result: str) -> str:
    """Return LLVM text that loads a field of the context block."""
    return (
        make_field_pointer(name, f"{result}.p")
        + f"  {result} = load {layout.get_field_type(name)}, ptr {result}.p\n"
    )


def make_memory_add(pointer: str, amount: str, tag: str) -> str:
    """Return LLVM text that adds an i64 to a number in memory. The string `tag` makes the names of temporary
    values unique.
    """
    return (
        f"  %{tag}.o = load i64, ptr {pointer}\n"
        f"  %{tag}.n = add i64 %{tag}.o, {amount}\n"
        f"  store i64 %{tag}.n, ptr {pointer}\n"
    )


def make_odd_rounding(value: str, result: str) -> str:
    """Return LLVM text that rounds a double to float with the mode round-to-odd. A later rounding to 16 bits
    then gives the correctly rounded result.

    A float cannot store the last 29 bits of a double. Subnormal floats do not matter here, because the
    16-bit types have no values that are so small.
    """
    return f"""  {result}.raw = bitcast double {value} to i64
  {result}.low = and i64 {result}.raw, 536870911
  {result}.inexact = icmp ne i64 {result}.low, 0
  {result}.sticky = zext i1 {result}.inexact to i64
  {result}.last = shl i64 {result}.sticky, 29
  {result}.high = and i64 {result}.raw, -536870912
  {result}.kept = or i64 {result}.high, {result}.last
  {result}.short = bitcast i64 {result}.kept to double
  {result} = fptrunc double {result}.short to float
"""
