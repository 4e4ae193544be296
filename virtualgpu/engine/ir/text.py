"""Small pieces of LLVM IR text that the support functions share."""

from __future__ import annotations

from virtualgpu.engine.ir import layout

# The number of each lane.
IOTA, IOTA_I32 = (
    "<" + ", ".join(f"{llvm} {lane}" for lane in range(layout.LANES)) + ">" for llvm in ("i64", "i32")
)


def splat(llvm: str, scalar: str, result: str) -> str:
    """Text that puts one scalar into all 32 lanes of `result`."""
    return (
        f"  {result}.s = insertelement <32 x {llvm}> poison, {llvm} {scalar}, i32 0\n"
        f"  {result} = shufflevector <32 x {llvm}> {result}.s, <32 x {llvm}> poison, "
        f"<32 x i32> zeroinitializer\n"
    )


def field(name: str, result: str) -> str:
    """Text that puts the address of a context field into `result`."""
    return f"  {result} = getelementptr i8, ptr %ctx, i64 {layout.offset(name)}\n"


def load_field(name: str, result: str) -> str:
    """Text that loads a context field into `result`."""
    return field(name, f"{result}.p") + f"  {result} = load {layout.llvm_type(name)}, ptr {result}.p\n"


def bump(pointer: str, amount: str, tag: str) -> str:
    """Text that adds an i64 to memory; `tag` keeps its temporaries apart."""
    return (
        f"  %{tag}.o = load i64, ptr {pointer}\n"
        f"  %{tag}.n = add i64 %{tag}.o, {amount}\n"
        f"  store i64 %{tag}.n, ptr {pointer}\n"
    )
