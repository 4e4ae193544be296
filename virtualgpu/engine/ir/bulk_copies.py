"""LLVM IR functions for bulk copies within a block: each lane copies its own range of bytes.

A range is read, checked and counted 32 pieces of 16 bytes at a time. An observer is called for one piece at a
time, as an access of the lane that copies it.
"""

from __future__ import annotations

from virtualgpu.engine.ir import layout
from virtualgpu.engine.ir.text import LANE_INDICES, make_field_load, make_field_pointer, make_splat

PIECE_BYTES = 16
_WORDS_PER_PIECE = PIECE_BYTES // 4
_PARAMETER_LIST = (
    "ptr %ctx, <32 x i64> %to, <32 x i64> %from, <32 x i64> %sizes, <32 x i64> %bars, i32 %mask, "
    "i32 %function, i32 %pc, i32 %load, i32 %store"
)


def _make_observer_call(site: str, addresses: str) -> str:
    return (
        f"  store <32 x i64> {addresses}, ptr %told\n"
        f"  call void %observer(ptr %ctx, i32 {site}, ptr %told, i32 %piece.mask, ptr null)\n"
    )


def make_bulk_copy(
    name: str,
    to_shared: bool,
    is_observed: bool,
    is_traced: bool,
    check_names: tuple[str, str],
    begin_function: str = "",
    complete_function: str = "",
) -> str:
    """Return LLVM text of a function in which each lane copies a range of bytes to or from shared memory.

    The function has the signature ``i1 @name(ctx, to, from, sizes, barriers, mask, function, pc, load,
    store)``.

    It returns true after a fault. Shared addresses are offsets, in i64 like all addresses here.

    Parameters
    ----------
    name
        Name of the function.
    to_shared
        Whether it copies to shared memory, or from there to global memory.
    is_observed
        Whether an observer is called.
    is_traced
        Whether the addresses are recorded in a trace.
    check_names
        Names of the functions that check and count the reads and the writes.
    begin_function
        Name of the function that queues a copy until an mbarrier's phase is over (`copy_queue.make_begin_function`).
    complete_function
        Name of the function that counts the bytes that an mbarrier expects (``mbarrier_update``).
    """
    source_space = "shared"
    target_space = "global"
    if to_shared:
        source_space = "global"
        target_space = "shared"
    copy_words = "".join(
        f"""  %at{index} = add <32 x i64> %source, splat (i64 {4 * index})
  %word{index} = call <32 x i32> @gather_i32(<32 x i64> %at{index}, i32 %piece.mask)
"""
        for index in range(_WORDS_PER_PIECE)
    )
    if to_shared:
        copy_words += "".join(
            f"  %row{index} = getelementptr i8, ptr %words, i64 {128 * index}\n"
            f"  store <32 x i32> %word{index}, ptr %row{index}, align 64\n"
            for index in range(_WORDS_PER_PIECE)
        )
        copy_words += (
            f"  call void @{begin_function}(ptr %ctx, <32 x i64> %target, i32 %piece.mask, ptr %words, i32 {_WORDS_PER_PIECE}, "
            "i32 %store, i64 %bar)\n"
        )
        completion_text = (
            "  %negative = sub i64 0, %bytes\n"
            + make_splat("i64", "%bar", "%bar.v")
            + make_splat("i64", "%negative", "%done.v")
            + f"  %state = call <32 x i64> @{complete_function}(ptr %ctx, <32 x i64> %bar.v, i32 %own, "
            "<32 x i64> zeroinitializer, i64 0, <32 x i64> %done.v)\n"
        )
    else:
        copy_words += "".join(
            f"""  %to{index} = add <32 x i64> %target, splat (i64 {4 * index})
  call void @scatter_i32(<32 x i32> %word{index}, <32 x i64> %to{index}, i32 %piece.mask)
"""
            for index in range(_WORDS_PER_PIECE)
        )
        completion_text = ""
    host_address_text = make_field_load("shared", "%shared") + make_splat("i64", "%shared", "%shared.v")
    for space, side_name in ((source_space, "source"), (target_space, "target")):
        space_base = "%shared.v" if space == "shared" else "zeroinitializer"
        host_address_text += f"  %{side_name} = add <32 x i64> %{side_name}.p, {space_base}\n"
    check_texts = ""
    fault_location = "i32 %function, i32 %pc"
    for space, side_name, check_name, access_name in (
        (source_space, "source", check_names[0], "load"),
        (target_space, "target", check_names[1], "store"),
    ):
        address_row_type = "<32 x i64>"
        address = f"%{side_name}.a"
        if space == "shared":
            address_row_type = "<32 x i32>"
            address = f"%{side_name}.s"
            check_texts += f"  {address} = trunc <32 x i64> %{side_name}.a to <32 x i32>\n"
        check_texts += f"""  %{side_name}.bad = call i1 @{check_name}(ptr %ctx, {address_row_type} {address}, i32 %all, {fault_location}, i32 %{access_name})
  br i1 %{side_name}.bad, label %fail, label %{side_name}.fine
{side_name}.fine:
"""
    if is_traced:
        check_texts += "".join(
            f"  call void @trace_row(ptr %ctx, <32 x i64> %{side_name}.a, i32 %all, i32 {layout.ROW_ADDRESS}, "
            f"i32 {layout.TRACE_ALL & ~layout.TRACE_SHARED})\n"
            for side_name in ("source", "target")
        )
    observer_calls = ""
    next_step = "  br label %moved\n"
    piece_addresses = "  %piece.mask = add i32 %all, 0\n" + "".join(
        f"  %{side_name}.p = add <32 x i64> %{side_name}.a, zeroinitializer\n"
        for side_name in ("source", "target")
    )
    if is_observed:
        piece_addresses = """  br label %piece
piece:
  %j = phi i32 [0, %target.fine], [%j1, %piece]
  %piece.mask = add i32 %own, 0
"""
        for side_name in ("source", "target"):
            piece_addresses += f"  %{side_name}.j = extractelement <32 x i64> %{side_name}.a, i32 %j\n"
            piece_addresses += make_splat("i64", f"%{side_name}.j", f"%{side_name}.p")
        next_step = """  %j1 = add i32 %j, 1
  %again = icmp ult i32 %j1, %now
  br i1 %again, label %piece, label %moved
"""
        observer_calls = (
            make_field_load("observer", "%observer.i") + "  %observer = inttoptr i64 %observer.i to ptr\n"
        )
        observer_calls += _make_observer_call("%load", "%source.p") + _make_observer_call(
            "%store", "%target.p"
        )
    return f"""
declare i32 @llvm.umin.i32(i32, i32)
define internal i1 @{name}({_PARAMETER_LIST}) noinline {{
entry:
  %tos = alloca <32 x i64>
  %froms = alloca <32 x i64>
  %counts = alloca <32 x i64>
  %barriers = alloca <32 x i64>
  %told = alloca <32 x i64>
  %words = alloca [{_WORDS_PER_PIECE} x <32 x i32>], align 64
  store <32 x i64> %to, ptr %tos
  store <32 x i64> %from, ptr %froms
  store <32 x i64> %sizes, ptr %counts
  store <32 x i64> %bars, ptr %barriers
  br label %lanes
lanes:
  %rest = phi i32 [%mask, %entry], [%rest1, %over]
  %none = icmp eq i32 %rest, 0
  br i1 %none, label %done, label %lane
lane:
  %l = call i32 @llvm.cttz.i32(i32 %rest, i1 false)
  %own = shl i32 1, %l
  %minus = sub i32 %rest, 1
  %rest1 = and i32 %rest, %minus
  %to.p = getelementptr i64, ptr %tos, i32 %l
  %to.l = load i64, ptr %to.p
  %from.p = getelementptr i64, ptr %froms, i32 %l
  %from.l = load i64, ptr %from.p
  %bytes.p = getelementptr i64, ptr %counts, i32 %l
  %bytes = load i64, ptr %bytes.p
  %bar.p = getelementptr i64, ptr %barriers, i32 %l
  %bar = load i64, ptr %bar.p
  %odd = and i64 %bytes, {PIECE_BYTES - 1}
  %is.odd = icmp ne i64 %odd, 0
  br i1 %is.odd, label %uneven, label %begin
uneven:
  call void @fault(ptr %ctx, i32 {layout.MISALIGNED}, {fault_location}, i32 %l, i32 {PIECE_BYTES}, i64 %bytes)
  ret i1 true
begin:
  %pieces64 = lshr i64 %bytes, 4
  %pieces = trunc i64 %pieces64 to i32
  br label %loop
loop:
  %n = phi i32 [0, %begin], [%n1, %moved]
  %more = icmp ult i32 %n, %pieces
  br i1 %more, label %move, label %over
move:
  %left = sub i32 %pieces, %n
  %now = call i32 @llvm.umin.i32(i32 %left, i32 32)
  %unused = sub i32 32, %now
  %all = lshr i32 -1, %unused
  %n64 = zext i32 %n to i64
  %offset = shl i64 %n64, 4
  %to.n = add i64 %to.l, %offset
  %from.n = add i64 %from.l, %offset
{make_splat("i64", "%to.n", "%to.v")}{make_splat("i64", "%from.n", "%from.v")}  %across = shl <32 x i64> {LANE_INDICES}, splat (i64 4)
  %target.a = add <32 x i64> %to.v, %across
  %source.a = add <32 x i64> %from.v, %across
{check_texts}{piece_addresses}{observer_calls}{host_address_text}{copy_words}{next_step}moved:
  %n1 = add i32 %n, 32
  br label %loop
over:
{completion_text}  br label %lanes
fail:
{make_field_pointer("fault_lane", "%fault.p")}  store i32 %l, ptr %fault.p
  ret i1 true
done:
  ret i1 false
}}
"""
