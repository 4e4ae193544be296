"""LLVM IR functions for asynchronous copies: a queue of pending copies for each warp.

A copy reads global memory when it is issued. Its data stay in the queue until its thread waits for it, or
until the mbarrier to which it is bound completes a phase. Only then are they written to shared memory: as
late as hardware may do it, so that a kernel that does not wait computes with the old values. If a warp has
more pending copies than the queue holds, copies complete early, as they may on hardware.
"""

from __future__ import annotations

from virtualgpu.engine.ir import lanes, layout
from virtualgpu.engine.ir.text import make_field_load, make_splat
from virtualgpu.engine.lower.warp_code import WarpCode

QUEUE_CAPACITY = 512
_ENTRY_BYTES = 1280
# A warp's area begins with the number of groups that each lane has committed.
WARP_BYTES = _ENTRY_BYTES * (QUEUE_CAPACITY + 1)
# An entry: lanes with a pending copy, words per lane, the site; then for each lane the group, the address,
# the words, and the mbarrier with whose phase the copy completes, if any.
_WORD_COUNT_OFFSET = 4
_SITE_OFFSET = 8
_GROUPS_OFFSET = 128
_ADDRESSES_OFFSET = 256
_WORDS_OFFSET = 512
_BARRIERS_OFFSET = 1024

# The group of copies that no wait for groups includes, because they are bound to an mbarrier only.
_NO_GROUP = 1 << 30

_BEGIN_PARAMETERS = "ptr %ctx, <32 x i64> %to, i32 %mask, ptr %words, i32 %count, i32 %site, i64 %barrier"
_FIND_QUEUE_TEXT = (
    make_field_load("copies", "%copies")
    + make_field_load("warp", "%warp")
    + make_field_load("frames", "%frames")
    + make_field_load("frame_stride", "%frame_stride")
    + f"""  %warp64 = zext i32 %warp to i64
  %area.o = mul i64 %warp64, {WARP_BYTES}
  %area.i = add i64 %copies, %area.o
  %area = inttoptr i64 %area.i to ptr
  %frame.o = mul i64 %warp64, %frame_stride
  %frame.i = add i64 %frames, %frame.o
  %frame.p = inttoptr i64 %frame.i to ptr
  %held.p = getelementptr i8, ptr %frame.p, i64 {layout.PENDING_COPIES_OFFSET}
  %held = load i32, ptr %held.p
"""
)


def _make_notification(mask: str, site: str = " %site") -> str:
    """Return LLVM text that reports an event of a queue entry (``%event``) to the observer."""
    return (
        make_field_load("shared", "%shared")
        + make_splat("i64", "%shared", "%shareds")
        + "  %shown = sub <32 x i64> %places, %shareds\n  store <32 x i64> %shown, ptr %told\n"
        + make_field_load("observer", "%observer.i")
        + f"""  %observer = inttoptr i64 %observer.i to ptr
  %site.at = getelementptr i8, ptr %entry.p, i64 {_SITE_OFFSET}
 {site} = load i32, ptr %site.at
  %site.4 = shl i32{site}, 2
  %what = add i32 %site.4, %event
  %code = sub i32 {layout.COPY_EVENTS}, %what
  call void %observer(ptr %ctx, i32 %code, ptr %told, i32 {mask}, ptr null)
"""
    )


def make_begin_function(code: WarpCode) -> str:
    """Return the name of the LLVM function that adds an asynchronous copy to the queue.

    The function has the signature
    ``void (ctx, <32 x i64> addresses, i32 mask, ptr words, i32 count, i32 site, i64 barrier)``.

    With an mbarrier's host address the copy belongs to its phase, and to no group.
    """
    notification_text = ""
    if code.options.is_observed:
        notification_text = f"""  br i1 %free, label %done, label %tell
tell:
  %places = add <32 x i64> %to, zeroinitializer
  %event = add i32 0, {layout.COPY_BOUND_TO_BARRIER}
{_make_notification("%mask", " %site.t")}"""
    code.add_support_function(
        "copy_begin",
        f"""
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
define internal void @copy_begin({_BEGIN_PARAMETERS}) noinline {{
entry:
  %told = alloca <32 x i64>
  %none = icmp eq i32 %mask, 0
  br i1 %none, label %done, label %room
room:
{_FIND_QUEUE_TEXT}  %groups0 = load <32 x i32>, ptr %area, align 64
  %free = icmp eq i64 %barrier, 0
  %later = select i1 %free, i32 0, i32 {_NO_GROUP}
{make_splat("i32", "%later", "%laters")}  %groups = add <32 x i32> %groups0, %laters
  %full = icmp uge i32 %held, {QUEUE_CAPACITY}
  br i1 %full, label %early, label %append
early:
  %all = add <32 x i32> %groups0, splat (i32 {_NO_GROUP + 1})
  call void @{make_arrive_function(code)}(ptr %ctx, i32 -1, <32 x i32> %all, i64 0)
  br label %append
append:
  %number = phi i32 [%held, %room], [0, %early]
  %number1 = add i32 %number, 1
  store i32 %number1, ptr %held.p
  %entry.o = mul i32 %number1, {_ENTRY_BYTES}
  %entry.p = getelementptr i8, ptr %area, i32 %entry.o
  store i32 %mask, ptr %entry.p
  %count.p = getelementptr i8, ptr %entry.p, i64 {_WORD_COUNT_OFFSET}
  store i32 %count, ptr %count.p
  %site.p = getelementptr i8, ptr %entry.p, i64 {_SITE_OFFSET}
  store i32 %site, ptr %site.p
  %groups.p = getelementptr i8, ptr %entry.p, i64 {_GROUPS_OFFSET}
  store <32 x i32> %groups, ptr %groups.p, align 64
  %places.p = getelementptr i8, ptr %entry.p, i64 {_ADDRESSES_OFFSET}
  store <32 x i64> %to, ptr %places.p, align 64
  %bound.p = getelementptr i8, ptr %entry.p, i64 {_BARRIERS_OFFSET}
{make_splat("i64", "%barrier", "%bound")}  store <32 x i64> %bound, ptr %bound.p, align 64
  %words.p = getelementptr i8, ptr %entry.p, i64 {_WORDS_OFFSET}
  %size32 = shl i32 %count, 7
  %size = zext i32 %size32 to i64
  call void @llvm.memcpy.p0.p0.i64(ptr %words.p, ptr %words, i64 %size, i1 false)
{notification_text}  br label %done
done:
  ret void
}}
""",
    )
    return "copy_begin"


def make_arrive_function(code: WarpCode) -> str:
    """Return the name of the LLVM function that writes the data of completed copies to shared memory.

    The function has the signature ``void (ctx, i32 lanes, <32 x i32> before, i64 barrier)``.

    Groups before a number are due, or, with a barrier's host address, the copies bound to that barrier.
    """
    code.add_support_function(*lanes.make_scatter("i32"))
    trace_text = notification_text = ""
    if code.options.is_traced:
        trace_call = (
            f"call void @trace_row(ptr %ctx, <32 x i64> %{{}}, i32 %due, i32 {{}}, i32 {layout.TRACE_ALL})"
        )
        trace_text = f"  {trace_call.format('at', layout.ROW_HOST_ADDRESS)}\n  %bits = zext <32 x i32> %word to <32 x i64>\n"
        trace_text += f"  {trace_call.format('bits', layout.ROW_WRITTEN + 4)}\n"
    if code.options.is_observed:
        event_text = f"select i1 %by.group, i32 {layout.COPY_DONE_BY_WAIT}, i32 {layout.COPY_DONE_BY_BARRIER}"
        notification_text = f"  %event = {event_text}\n{_make_notification('%due')}"
    code.add_support_function(
        "copy_arrive",
        f"""
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
define internal void @copy_arrive(ptr %ctx, i32 %lanes, <32 x i32> %before, i64 %barrier) noinline {{
entry:
  %told = alloca <32 x i64>
  %by.group = icmp eq i64 %barrier, 0
{make_splat("i64", "%barrier", "%barriers")}{_FIND_QUEUE_TEXT}  br label %loop
loop:
  %n = phi i32 [0, %entry], [%n1, %next]
  %kept = phi i32 [0, %entry], [%kept1, %next]
  %more = icmp ult i32 %n, %held
  br i1 %more, label %look, label %done
look:
  %n1 = add i32 %n, 1
  %entry.o = mul i32 %n1, {_ENTRY_BYTES}
  %entry.p = getelementptr i8, ptr %area, i32 %entry.o
  %mask = load i32, ptr %entry.p
  %groups.p = getelementptr i8, ptr %entry.p, i64 {_GROUPS_OFFSET}
  %groups = load <32 x i32>, ptr %groups.p, align 64
  %age = sub <32 x i32> %groups, %before
  %old = icmp slt <32 x i32> %age, zeroinitializer
  %bound.p = getelementptr i8, ptr %entry.p, i64 {_BARRIERS_OFFSET}
  %bound = load <32 x i64>, ptr %bound.p, align 64
  %is.bound = icmp eq <32 x i64> %bound, %barriers
  %is.due = select i1 %by.group, <32 x i1> %old, <32 x i1> %is.bound
  %is.due32 = bitcast <32 x i1> %is.due to i32
  %due0 = and i32 %mask, %lanes
  %due = and i32 %due0, %is.due32
  %some = icmp ne i32 %due, 0
  br i1 %some, label %land, label %settle
land:
  %places.p = getelementptr i8, ptr %entry.p, i64 {_ADDRESSES_OFFSET}
  %places = load <32 x i64>, ptr %places.p, align 64
  %count.p = getelementptr i8, ptr %entry.p, i64 {_WORD_COUNT_OFFSET}
  %count = load i32, ptr %count.p
{notification_text}  br label %words
words:
  %w = phi i32 [0, %land], [%w1, %words]
  %word.o = shl i32 %w, 7
  %word.o1 = add i32 %word.o, {_WORDS_OFFSET}
  %word.p = getelementptr i8, ptr %entry.p, i32 %word.o1
  %word = load <32 x i32>, ptr %word.p, align 64
  %w64 = zext i32 %w to i64
  %step = shl i64 %w64, 2
{make_splat("i64", "%step", "%steps")}  %at = add <32 x i64> %places, %steps
  call void @scatter_i32(<32 x i32> %word, <32 x i64> %at, i32 %due)
{trace_text}  %w1 = add i32 %w, 1
  %again = icmp ult i32 %w1, %count
  br i1 %again, label %words, label %settle
settle:
  %left = xor i32 %mask, %due
  store i32 %left, ptr %entry.p
  %empty = icmp eq i32 %left, 0
  br i1 %empty, label %next, label %keep
keep:
  %kept.1 = add i32 %kept, 1
  %moves = icmp ne i32 %n, %kept
  br i1 %moves, label %move, label %next
move:
  %to.o = mul i32 %kept.1, {_ENTRY_BYTES}
  %to.p = getelementptr i8, ptr %area, i32 %to.o
  call void @llvm.memcpy.p0.p0.i64(ptr %to.p, ptr %entry.p, i64 {_ENTRY_BYTES}, i1 false)
  br label %next
next:
  %kept1 = phi i32 [%kept, %settle], [%kept.1, %keep], [%kept.1, %move]
  br label %loop
done:
  store i32 %kept, ptr %held.p
  ret void
}}
""",
    )
    return "copy_arrive"


def make_commit_function(code: WarpCode) -> str:
    """Return the name of the LLVM function that groups all asynchronous copies since the last commit.

    The function has the signature ``void (ctx, i32 mask)``.
    """
    code.add_support_function(
        "copy_commit",
        f"""
define internal void @copy_commit(ptr %ctx, i32 %mask) noinline {{
{_FIND_QUEUE_TEXT}  %groups = load <32 x i32>, ptr %area, align 64
  %lanes = bitcast i32 %mask to <32 x i1>
  %one = zext <32 x i1> %lanes to <32 x i32>
  %groups1 = add <32 x i32> %groups, %one
  store <32 x i32> %groups1, ptr %area, align 64
  ret void
}}
""",
    )
    return "copy_commit"


def make_wait_function(code: WarpCode) -> str:
    """Return the name of the LLVM function that waits until each lane has at most n pending copy groups.

    The function has the signature ``void (ctx, i32 mask, i32 n)``.
    """
    code.add_support_function(
        "copy_wait",
        f"""
define internal void @copy_wait(ptr %ctx, i32 %mask, i32 %n) noinline {{
{_FIND_QUEUE_TEXT}  %groups = load <32 x i32>, ptr %area, align 64
{make_splat("i32", "%n", "%ns")}  %before = sub <32 x i32> %groups, %ns
  call void @{make_arrive_function(code)}(ptr %ctx, i32 %mask, <32 x i32> %before, i64 0)
  ret void
}}
""",
    )
    return "copy_wait"


def make_bind_function(code: WarpCode) -> str:
    """Return the name of the LLVM function that makes a barrier phase wait for the lanes' copies.

    The function has the signature ``void (ctx, i32 mask, <32 x i64> barriers)``.
    """
    notification_text = (
        f"  %event = add i32 0, {layout.COPY_BOUND_TO_BARRIER}\n{_make_notification('%due')}"
        if code.options.is_observed
        else ""
    )
    code.add_support_function(
        "copy_bind",
        f"""
define internal void @copy_bind(ptr %ctx, i32 %lanes, <32 x i64> %barriers) noinline {{
entry:
  %told = alloca <32 x i64>
{_FIND_QUEUE_TEXT}  br label %loop
loop:
  %n = phi i32 [0, %entry], [%n1, %look], [%n1, %set]
  %more = icmp ult i32 %n, %held
  br i1 %more, label %look, label %done
look:
  %n1 = add i32 %n, 1
  %entry.o = mul i32 %n1, {_ENTRY_BYTES}
  %entry.p = getelementptr i8, ptr %area, i32 %entry.o
  %mask = load i32, ptr %entry.p
  %bound.p = getelementptr i8, ptr %entry.p, i64 {_BARRIERS_OFFSET}
  %bound = load <32 x i64>, ptr %bound.p, align 64
  %free = icmp eq <32 x i64> %bound, zeroinitializer
  %free32 = bitcast <32 x i1> %free to i32
  %due0 = and i32 %mask, %lanes
  %due = and i32 %due0, %free32
  %some = icmp ne i32 %due, 0
  br i1 %some, label %set, label %loop
set:
  %chosen = bitcast i32 %due to <32 x i1>
  %bound1 = select <32 x i1> %chosen, <32 x i64> %barriers, <32 x i64> %bound
  store <32 x i64> %bound1, ptr %bound.p, align 64
  %places.p = getelementptr i8, ptr %entry.p, i64 {_ADDRESSES_OFFSET}
  %places = load <32 x i64>, ptr %places.p, align 64
{notification_text}  br label %loop
done:
  ret void
}}
""",
    )
    return "copy_bind"


def make_phase_end_function(code: WarpCode) -> str:
    """Return the name of the LLVM function that completes the copies of a barrier when its phase has ended.

    The function has the signature ``void (ctx, i64 barrier)``.
    """
    code.add_support_function(
        "copy_land",
        f"""
define internal void @copy_land(ptr %ctx, i64 %barrier) noinline {{
entry:
{make_field_load("warp", "%mine")}{make_field_load("warps", "%warps")}  br label %loop
loop:
  %w = phi i32 [0, %entry], [%w1, %loop]
  store i32 %w, ptr %mine.p
  call void @{make_arrive_function(code)}(ptr %ctx, i32 -1, <32 x i32> zeroinitializer, i64 %barrier)
  %w1 = add i32 %w, 1
  %more = icmp ult i32 %w1, %warps
  br i1 %more, label %loop, label %done
done:
  store i32 %mine, ptr %mine.p
  ret void
}}
""",
    )
    return "copy_land"
