"""LLVM IR for instructions with which lanes of a warp exchange data: shuffles, votes, matches, reductions."""

from __future__ import annotations

from collections.abc import Callable

from virtualgpu.compile.ptx import ir
from virtualgpu.engine.ir import lanes, layout
from virtualgpu.engine.ir.emit import Emitter, constant, convert_to_signed, llvm_of
from virtualgpu.engine.ir.text import LANE_BITS, LANE_INDICES_I32, make_field_load, make_lane_mask, make_splat
from virtualgpu.engine.lower.warp_code import WarpCode
from virtualgpu.errors import NotSupportedError

MATCH_ANY_FUNCTION = (
    "match_any",
    """
define internal <32 x i32> @match_any(<32 x i64> %v, i32 %mask) noinline {
entry:
  %spill = alloca <32 x i64>
  store <32 x i64> %v, ptr %spill
  br label %loop
loop:
  %rest = phi i32 [%mask, %entry], [%rest1, %body]
  %out = phi <32 x i32> [zeroinitializer, %entry], [%out1, %body]
  %over = icmp eq i32 %rest, 0
  br i1 %over, label %done, label %body
body:
  %l = call i32 @llvm.cttz.i32(i32 %rest, i1 false)
  %xp = getelementptr i64, ptr %spill, i32 %l
  %x = load i64, ptr %xp
  %s0 = insertelement <32 x i64> poison, i64 %x, i32 0
  %s = shufflevector <32 x i64> %s0, <32 x i64> poison, <32 x i32> zeroinitializer
  %eq = icmp eq <32 x i64> %v, %s
  %eqs = bitcast <32 x i1> %eq to i32
  %group = and i32 %eqs, %mask
  %not = xor i32 %group, -1
  %rest1 = and i32 %rest, %not
  %g0 = insertelement <32 x i32> poison, i32 %group, i32 0
  %g = shufflevector <32 x i32> %g0, <32 x i32> poison, <32 x i32> zeroinitializer
  %members = bitcast i32 %group to <32 x i1>
  %out1 = select <32 x i1> %members, <32 x i32> %g, <32 x i32> %out
  br label %loop
done:
  ret <32 x i32> %out
}
""",
)

# Lanes of `mask` have reached a warp-wide instruction; `masks` contains the lanes that each waits for. The
# result is the lanes that continue together, or 0: lanes are parked until the others arrive, or there is a
# fault.
MEETING_FUNCTION = (
    "meet",
    f"""
declare i32 @llvm.vector.reduce.or.v32i32(<32 x i32>)
define internal i32 @meet(ptr %ctx, ptr %frame, <32 x i32> %masks, i32 %mask, i32 %function, i32 %pc, i32 %parked, i32 %strict) noinline {{
entry:
  %own = and <32 x i32> %masks, {LANE_BITS}
  %not.named = icmp eq <32 x i32> %own, zeroinitializer
  %unnamed = bitcast <32 x i1> %not.named to i32
  %outside = and i32 %unnamed, %mask
  %wrong = icmp ne i32 %outside, 0
  br i1 %wrong, label %out, label %inside
out:
  %l0 = call i32 @llvm.cttz.i32(i32 %outside, i1 false)
  call void @fault(ptr %ctx, i32 {layout.LANE_OUTSIDE_MASK}, i32 %function, i32 %pc, i32 %l0, i32 0, i64 0)
  ret i32 0
inside:
{make_lane_mask("%mask", "%m")}  %asked = select <32 x i1> %m, <32 x i32> %masks, <32 x i32> zeroinitializer
  %named = call i32 @llvm.vector.reduce.or.v32i32(<32 x i32> %asked)
  %pcs = load <32 x i32>, ptr %frame, align 64
  %left = icmp ne <32 x i32> %pcs, splat (i32 {layout.EXITED})
  %there = bitcast <32 x i1> %left to i32
  %alive = or i32 %there, %mask
  %needed = and i32 %named, %alive
  %others = xor i32 %mask, -1
  %missing = and i32 %needed, %others
  %complete = icmp eq i32 %missing, 0
  br i1 %complete, label %met, label %gather
gather:
{make_splat("i32", "%parked", "%place")}  %waits = icmp eq <32 x i32> %pcs, %place
  %waiting = bitcast <32 x i1> %waits to i32
  %together = or i32 %mask, %waiting
  %nobody = xor i32 %together, -1
  %still = and i32 %needed, %nobody
  %all.here = icmp eq i32 %still, 0
  br i1 %all.here, label %met, label %force
force:
{make_field_load("forced", "%forced")}  %held = icmp ne i32 %forced, 0
  br i1 %held, label %alone, label %park
alone:
  %must = icmp ne i32 %strict, 0
  br i1 %must, label %unmet, label %met
unmet:
  %l1 = call i32 @llvm.cttz.i32(i32 %mask, i1 false)
  call void @fault(ptr %ctx, i32 {layout.UNMET_MEMBER_MASK}, i32 %function, i32 %pc, i32 %l1, i32 0, i64 0)
  ret i32 0
park:
  %new = select <32 x i1> %m, <32 x i32> %place, <32 x i32> %pcs
  store <32 x i32> %new, ptr %frame, align 64
  ret i32 0
met:
  %who = phi i32 [%mask, %inside], [%together, %gather], [%together, %alone]
  ret i32 %who
}}
""",
)

# A bit pattern whose XOR changes small and large numbers of either sign.
_ABSENT_LANE_BITS = 0x5A5A5A5A


def emit(code: WarpCode, instruction: ir.Instruction) -> bool:
    """Emit LLVM IR for a warp-wide instruction. Return False for an instruction of any other kind."""
    handler = HANDLERS.get(instruction.root)
    if handler is None:
        return False
    handler(code, instruction)
    return True


def member_mask_operand(instruction: ir.Instruction) -> ir.Operand | None:
    """Return the member-mask operand of a ``.sync`` instruction, if it has one."""
    if instruction.root in ("wmma", "mma", "ldmatrix", "stmatrix"):
        return ir.Immediate(0xFFFFFFFF)  # the whole warp
    return instruction.operands[-1] if "sync" in instruction.parts and instruction.operands else None


def _emit_member_masks(code: WarpCode, instruction: ir.Instruction) -> str:
    """Return for each lane the mask of lanes that take part with it: active lanes in its member mask.

    Masks may differ between lanes of one warp, as between the tiles of cooperative groups.
    """
    active_lanes = code.emitter.splat("i32", code.executed_mask(instruction))
    operand = member_mask_operand(instruction)
    if operand is None:
        return active_lanes
    return code.emitter.binary("and", "i32", active_lanes, code.get(operand, "b32"))


def _shfl(code: WarpCode, instruction: ir.Instruction) -> None:
    emitter = code.emitter
    shuffle_mode = next(
        modifier for modifier in instruction.parts if modifier in ("up", "down", "bfly", "idx")
    )
    destination = (
        instruction.operands[0]
        if isinstance(instruction.operands[0], ir.Pair)
        else ir.Pair(instruction.operands[0], None)
    )
    predicate = (
        destination.second if code.options.is_traced or code.is_register_read(destination.second) else None
    )
    value = code.get(instruction.operands[1], "b32")
    delta = code.known_value(instruction.operands[2])
    control = code.known_value(instruction.operands[3])
    in_range_lanes = ""
    if delta is not None and control is not None:
        source_indices, in_range_mask = compute_shuffle_sources(shuffle_mode, delta, control)
        source_lanes = "<" + ", ".join(f"i32 {lane}" for lane in source_indices) + ">"
        _observe_sources(code, instruction, source_lanes)
        result = emitter.op(f"shufflevector <32 x i32> {value}, <32 x i32> poison, <32 x i32> {source_lanes}")
        if predicate is not None:
            in_range_lanes = emitter.mask_vector(str(in_range_mask))
    else:
        operands = [code.get(operand, "u32") for operand in instruction.operands[2:4]]
        code.add_support_function(*lanes.make_permute("i32"))
        source_lanes = ""
        if predicate is not None or code.options.is_observed:
            source_lanes, in_range_lanes = _emit_shuffle_sources(emitter, shuffle_mode, *operands)
            _observe_sources(code, instruction, source_lanes)
            result = emitter.op(
                f"call <32 x i32> @permute_i32(<32 x i32> {value}, <32 x i32> {source_lanes})"
            )
        else:
            if f"shuffle_{shuffle_mode}" not in code.tables.support_functions:
                code.add_support_function(*_make_shuffle_function(shuffle_mode))
            arguments = ", ".join(f"<32 x i32> {vector}" for vector in (value, *operands))
            result = emitter.op(f"call <32 x i32> @shuffle_{shuffle_mode}({arguments})")
    if code.options.is_observed:
        result = _change_absent_values(code, instruction, result, source_lanes)
    code.set(destination.first, result, "b32")
    if predicate is not None:
        code.set(predicate, in_range_lanes, "pred")


def _emit_shuffle_sources(emitter: Emitter, mode: str, delta: str, control: str) -> tuple[str, str]:
    """Return the source lane of each lane of a shuffle, and the lanes whose requested source is in range."""
    lane_mask = constant("i32", 31)
    delta = emitter.binary("and", "i32", delta, lane_mask)
    segment_mask = emitter.binary(
        "and", "i32", emitter.binary("lshr", "i32", control, constant("i32", 8)), lane_mask
    )
    clamp_bits = emitter.binary("and", "i32", control, lane_mask)
    lane_bits = emitter.binary("xor", "i32", segment_mask, constant("i32", -1))
    lowest_lane = emitter.binary("and", "i32", LANE_INDICES_I32, segment_mask)
    bound_lane = emitter.binary("or", "i32", lowest_lane, emitter.binary("and", "i32", clamp_bits, lane_bits))
    if mode == "up":
        source_lanes = emitter.binary("sub", "i32", LANE_INDICES_I32, delta)
        is_in_range = emitter.compare("sge", "i32", source_lanes, bound_lane)
    else:
        if mode == "down":
            source_lanes = emitter.binary("add", "i32", LANE_INDICES_I32, delta)
        elif mode == "bfly":
            source_lanes = emitter.binary("xor", "i32", LANE_INDICES_I32, delta)
        else:
            source_lanes = emitter.binary(
                "or", "i32", lowest_lane, emitter.binary("and", "i32", delta, lane_bits)
            )
        is_in_range = emitter.compare("sle", "i32", source_lanes, bound_lane)
    return emitter.select("i32", is_in_range, source_lanes, LANE_INDICES_I32), is_in_range


def compute_shuffle_sources(mode: str, delta: int, control: int) -> tuple[list[int], int]:
    """Return each lane's source lane in a shuffle with constant operands, and the mask of valid lanes.

    The result equals that of `_emit_shuffle_sources`, except that valid lanes are given as bits.
    """
    delta = delta & 31
    segment_mask = control >> 8 & 31
    clamp_lane = control & 31
    source_lanes = []
    in_range_lanes = 0
    for lane in range(layout.LANES):
        lowest_lane = lane & segment_mask
        bound_lane = lowest_lane | (clamp_lane & ~segment_mask)
        requested_lane = {
            "up": lane - delta,
            "down": lane + delta,
            "bfly": lane ^ delta,
            "idx": lowest_lane | (delta & ~segment_mask),
        }[mode]
        is_in_range = requested_lane >= bound_lane if mode == "up" else requested_lane <= bound_lane
        in_range_lanes |= is_in_range << lane
        source_lanes.append(requested_lane if is_in_range else lane)
    return source_lanes, in_range_lanes


def _make_shuffle_function(mode: str) -> tuple[str, str]:
    """Return an LLVM function for a shuffle in which each lane may read from a different lane."""
    emitter = Emitter()
    source_lanes, _ = _emit_shuffle_sources(emitter, mode, "%delta", "%control")
    row_type = "<32 x i32>"
    lines = "\n".join(emitter.lines)
    return (
        f"shuffle_{mode}",
        f"""
define internal {row_type} @shuffle_{mode}({row_type} %v, {row_type} %delta, {row_type} %control) noinline {{
{lines}
  %r = call {row_type} @permute_i32({row_type} %v, {row_type} {source_lanes})
  ret {row_type} %r
}}
""",
    )


def _observe_sources(code: WarpCode, instruction: ir.Instruction, source_lanes: str) -> None:
    """Emit a report to the observer of the lane from which each lane reads."""
    if code.options.is_observed:
        location = code.emitter.splat("i64", str(code.index << 32 | instruction.pc))
        code.report_to_observer(
            layout.SHUFFLE,
            code.emitter.cast(source_lanes, "i32", "i64"),
            code.executed_mask(instruction),
            location,
        )


def _observe_members(code: WarpCode, instruction: ir.Instruction) -> None:
    """Emit a report to the observer of inactive lanes in a member mask.

    Each lane reports the first of them. A last warp of fewer than 32 threads has fewer lanes, and a mask
    may contain the others.
    """
    operand = member_mask_operand(instruction)
    if not code.options.is_observed or operand is None:
        return
    emitter = code.emitter
    first_thread = emitter.op(f"mul i32 {emitter.context_load('warp')}, {layout.LANES}")
    remaining_threads = emitter.splat(
        "i32", emitter.op(f"sub i32 {emitter.context_load('threads')}, {first_thread}")
    )
    existing_mask = emitter.mask_bits(emitter.compare("slt", "i32", LANE_INDICES_I32, remaining_threads))
    absent_lanes = emitter.op(
        f"and i32 {existing_mask}, {emitter.op(f'xor i32 {code.executed_mask(instruction)}, -1')}"
    )
    missing_lanes = emitter.binary("and", "i32", code.get(operand, "b32"), emitter.splat("i32", absent_lanes))
    is_complete = emitter.compare("eq", "i32", missing_lanes, constant("i32", 0))
    lowest_missing_lane = emitter.intrinsic("cttz", "i32", missing_lanes, extra_arguments=("i1 false",))
    _observe_sources(
        code, instruction, emitter.select("i32", is_complete, LANE_INDICES_I32, lowest_missing_lane)
    )


def _change_absent_values(code: WarpCode, instruction: ir.Instruction, values: str, source_lanes: str) -> str:
    """Emit the shuffled values, with changed bits where they come from an inactive lane.

    Such a value is undefined. A checked launch uses other values than a plain launch, so that its results
    show whether the value is used.
    """
    emitter = code.emitter
    active_lanes = emitter.splat("i32", code.executed_mask(instruction))
    is_active = emitter.binary(
        "and", "i32", emitter.binary("lshr", "i32", active_lanes, source_lanes), constant("i32", 1)
    )
    is_absent = emitter.compare("eq", "i32", is_active, constant("i32", 0))
    return emitter.select(
        "i32", is_absent, emitter.binary("xor", "i32", values, constant("i32", _ABSENT_LANE_BITS)), values
    )


def _vote(code: WarpCode, instruction: ir.Instruction) -> None:
    emitter = code.emitter
    vote_mode = next(
        modifier for modifier in instruction.parts if modifier in ("all", "any", "uni", "ballot")
    )
    predicates = emitter.splat("i32", emitter.mask_bits(code.get(instruction.operands[1], "pred")))
    members = _emit_member_masks(code, instruction)
    _observe_members(code, instruction)
    votes = emitter.binary("and", "i32", predicates, members)
    if vote_mode == "ballot":
        code.set(instruction.operands[0], votes, "b32")
        return
    all_true = emitter.compare("eq", "i32", votes, members)
    all_false = emitter.compare("eq", "i32", votes, constant("i32", 0))
    if vote_mode == "uni":
        result = emitter.binary("or", "i1", all_true, all_false)
    else:
        result = all_true if vote_mode == "all" else emitter.binary("xor", "i1", all_false, constant("i1", 1))
    code.set(instruction.operands[0], result, "pred")


def _match(code: WarpCode, instruction: ir.Instruction) -> None:
    emitter = code.emitter
    value = emitter.cast(
        code.get(instruction.operands[1], instruction.type), llvm_of(instruction.type), "i64"
    )
    members = _emit_member_masks(code, instruction)
    _observe_members(code, instruction)
    code.add_support_function(*MATCH_ANY_FUNCTION)
    matching_lanes = emitter.op(
        f"call <32 x i32> @match_any(<32 x i64> {value}, i32 {code.executed_mask(instruction)})"
    )
    equal_lanes = emitter.binary("and", "i32", matching_lanes, members)
    destination = instruction.operands[0]
    if "any" in instruction.parts:
        code.set(destination, equal_lanes, "b32")
        return
    all_equal = emitter.compare("eq", "i32", equal_lanes, members)
    result = emitter.select("i32", all_equal, equal_lanes, constant("i32", 0))
    if isinstance(destination, ir.Pair):
        if destination.first is not None:
            code.set(destination.first, result, "b32")
        if destination.second is not None:
            code.set(destination.second, all_equal, "pred")
    else:
        code.set(destination, result, "b32")


_IDENTITY_VALUES = {"add": 0, "or": 0, "xor": 0, "and": -1}


def _make_reduce_function(name: str, identity: int) -> tuple[str, str]:
    """Return an LLVM function that reduces values over each group of lanes with a common member mask."""
    intrinsic_name = f"llvm.vector.reduce.{name}.v32i32"
    return (
        f"redux_{name}",
        f"""
declare i32 @{intrinsic_name}(<32 x i32>)
define internal <32 x i32> @redux_{name}(<32 x i32> %v, <32 x i32> %members, i32 %mask) noinline {{
entry:
  %spill = alloca <32 x i32>
  store <32 x i32> %members, ptr %spill
  br label %loop
loop:
  %rest = phi i32 [%mask, %entry], [%rest1, %body]
  %out = phi <32 x i32> [zeroinitializer, %entry], [%out1, %body]
  %over = icmp eq i32 %rest, 0
  br i1 %over, label %done, label %body
body:
  %l = call i32 @llvm.cttz.i32(i32 %rest, i1 false)
  %gp = getelementptr i32, ptr %spill, i32 %l
  %group0 = load i32, ptr %gp
  %own = shl i32 1, %l
  %group = or i32 %group0, %own
  %in = bitcast i32 %group to <32 x i1>
  %x = select <32 x i1> %in, <32 x i32> %v, <32 x i32> splat (i32 {convert_to_signed(identity, 32)})
  %r = call i32 @{intrinsic_name}(<32 x i32> %x)
  %r0 = insertelement <32 x i32> poison, i32 %r, i32 0
  %rs = shufflevector <32 x i32> %r0, <32 x i32> poison, <32 x i32> zeroinitializer
  %out1 = select <32 x i1> %in, <32 x i32> %rs, <32 x i32> %out
  %not = xor i32 %group, -1
  %rest1 = and i32 %rest, %not
  br label %loop
done:
  ret <32 x i32> %out
}}
""",
    )


def _redux(code: WarpCode, instruction: ir.Instruction) -> None:
    emitter = code.emitter
    ptx_type = instruction.type
    operation = next(
        modifier
        for modifier in instruction.parts[1:]
        if modifier in ("add", "min", "max", "and", "or", "xor")
    )
    if ptx_type == "f32":
        raise NotSupportedError(
            f"The virtual GPU does not support {instruction.opcode}. Write the reduction with shuffles."
        )
    is_signed = ptx_type[0] == "s"
    if operation in _IDENTITY_VALUES:
        identity = _IDENTITY_VALUES[operation]
        operation_name = operation
    else:
        highest_number = 0x7FFFFFFF if is_signed else 0xFFFFFFFF
        lowest_number = -0x80000000 if is_signed else 0
        identity = highest_number if operation == "min" else lowest_number
        operation_name = ("s" if is_signed else "u") + operation
    function_name, reduce_text = _make_reduce_function(operation_name, identity)
    code.add_support_function(function_name, reduce_text)
    value = code.get(instruction.operands[1], ptx_type)
    members = _emit_member_masks(code, instruction)
    _observe_members(code, instruction)
    result = emitter.op(
        f"call <32 x i32> @{function_name}(<32 x i32> {value}, <32 x i32> {members}, i32 {code.executed_mask(instruction)})"
    )
    code.set(instruction.operands[0], result, ptx_type)


def _activemask(code: WarpCode, instruction: ir.Instruction) -> None:
    code.set(instruction.operands[0], code.emitter.splat("i32", code.executed_mask(instruction)), "b32")


def _elect(code: WarpCode, instruction: ir.Instruction) -> None:
    emitter = code.emitter
    first_lane = emitter.intrinsic(
        "cttz", "i32", _emit_member_masks(code, instruction), extra_arguments=("i1 false",)
    )
    destination = instruction.operands[0]
    assert isinstance(destination, ir.Pair)
    if destination.first is not None:
        code.set(destination.first, first_lane, "b32")
    if destination.second is not None:
        code.set(destination.second, emitter.compare("eq", "i32", first_lane, LANE_INDICES_I32), "pred")


_FNS_FUNCTION = (
    "find_nth_set",
    """
define internal <32 x i32> @find_nth_set(<32 x i32> %v, <32 x i32> %base, <32 x i32> %offset) noinline {
entry:
  %vs = alloca <32 x i32>
  %bs = alloca <32 x i32>
  %fs = alloca <32 x i32>
  store <32 x i32> %v, ptr %vs
  store <32 x i32> %base, ptr %bs
  store <32 x i32> %offset, ptr %fs
  br label %lane
lane:
  %l = phi i32 [0, %entry], [%l1, %found]
  %vp = getelementptr i32, ptr %vs, i32 %l
  %x = load i32, ptr %vp
  %bp = getelementptr i32, ptr %bs, i32 %l
  %b0 = load i32, ptr %bp
  %fp = getelementptr i32, ptr %fs, i32 %l
  %f = load i32, ptr %fp
  %down = icmp slt i32 %f, 0
  %step = select i1 %down, i32 -1, i32 1
  %neg = sub i32 0, %f
  %many = select i1 %down, i32 %neg, i32 %f
  %none = icmp eq i32 %many, 0
  %want = select i1 %none, i32 1, i32 %many
  br label %scan
scan:
  %at = phi i32 [%b0, %lane], [%at1, %next]
  %count = phi i32 [0, %lane], [%count1, %next]
  %inside = icmp ult i32 %at, 32
  br i1 %inside, label %test, label %found
test:
  %bit0 = lshr i32 %x, %at
  %bit = and i32 %bit0, 1
  %count1 = add i32 %count, %bit
  %hit0 = icmp eq i32 %count1, %want
  %set = icmp eq i32 %bit, 1
  %hit = and i1 %hit0, %set
  br i1 %hit, label %found, label %only
only:
  br i1 %none, label %missed, label %next
missed:
  br label %found
next:
  %at1 = add i32 %at, %step
  br label %scan
found:
  %answer = phi i32 [-1, %scan], [%at, %test], [-1, %missed]
  store i32 %answer, ptr %vp
  %l1 = add i32 %l, 1
  %more = icmp ult i32 %l1, 32
  br i1 %more, label %lane, label %done
done:
  %r = load <32 x i32>, ptr %vs
  ret <32 x i32> %r
}
""",
)


def _fns(code: WarpCode, instruction: ir.Instruction) -> None:
    """Emit ``fns``: the position of the n-th set bit at or above (for negative n, below) a base."""
    value, base_position, offset = (code.get(operand, "b32") for operand in instruction.operands[1:4])
    code.add_support_function(*_FNS_FUNCTION)
    v = "<32 x i32>"
    code.set(
        instruction.operands[0],
        code.emitter.op(f"call {v} @find_nth_set({v} {value}, {v} {base_position}, {v} {offset})"),
        "b32",
    )


HANDLERS: dict[str, Callable[[WarpCode, ir.Instruction], None]] = {
    "shfl": _shfl,
    "vote": _vote,
    "match": _match,
    "redux": _redux,
    "activemask": _activemask,
    "elect": _elect,
    "fns": _fns,
}
ROOTS = HANDLERS.keys()
