"""One PTX function as one LLVM function that runs a warp in lockstep.

Lanes keep a program counter each (a block number). The block with the lowest number among waiting
lanes runs next, so lanes that diverged meet again at the post-dominator. Register values live in
the warp's frame between blocks and in LLVM values inside one.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from gpulab.errors import NotSupportedError
from gpulab.ptx import cfg, ir
from gpulab.virtual.engine import arith, bitops, calls, layout, memory_ops, warp_ops
from gpulab.virtual.engine.emit import Emitter, bits, constant, float_constant, llvm_of, vector

_NOTHING_TO_DO = {
    "membar", "fence", "prefetch", "prefetchu", "nanosleep", "pmevent", "discard", "applypriority",
    "griddepcontrol", "bar", "barrier",
}  # fmt: skip
_CONTEXT_SPECIALS = {
    f"%{name}.{axis}": f"{name}_{axis}" for name in ("ntid", "ctaid", "nctaid") for axis in "xyz"
}
_AXES = {"x": 0, "y": 1, "z": 2}
_ZERO_SPECIALS = ("%gridid", "%cluster_ctarank", "%clusterid", "%cluster_ctaid", "%envreg", "%reserved_smem")
_ONE_SPECIALS = ("%nclusterid", "%cluster_nctaid", "%cluster_nctarank")


@dataclass(slots=True)
class Options:
    """What to generate: counters, the trace; and what generation found out."""

    count: bool = True
    trace: bool = False
    float_atomics: bool = False


@dataclass(slots=True)
class Tables:
    """Numbering shared by all functions compiled for one kernel."""

    globals: list[str] = field(default_factory=list)
    shared: dict[str, int] = field(default_factory=dict)
    accesses: list[tuple[int, ir.Instruction]] = field(default_factory=list)
    branches: list[tuple[int, ir.Instruction]] = field(default_factory=list)
    blocks: list[tuple[int, cfg.Block]] = field(default_factory=list)
    support: dict[str, str] = field(default_factory=dict)
    functions: list[str] = field(default_factory=list)


@dataclass(slots=True)
class FunctionPlan:
    """A function's place in the numbering and the layout of its frame (bytes)."""

    function: ir.Function
    index: int
    flow: cfg.Flow
    live_out: list[set[str]]
    slots: dict[str, int]
    records: dict[str, tuple[int, int]]
    frame_bytes: int
    local_offsets: dict[str, int]
    local_bytes: int

    @property
    def symbol(self) -> str:
        return f"warp_{self.index}"


def plan(function: ir.Function, index: int) -> FunctionPlan:
    """Lay out a function's frame: lane program counters, parameter records, register slots."""
    flow = cfg.build(function)
    live = cfg.live_out(function, flow)
    crossing = set().union(*live) if live else set()
    at = 128
    records: dict[str, tuple[int, int]] = {}
    formal = () if function.is_entry else (*function.params, *function.returns)
    for param in (*formal, *function.call_params.values()):
        size = -(-param.size_bytes // 8) * 8
        records[param.name] = (at, size)
        at += 32 * size
    slots = {}
    for name, kind in function.registers.items():
        if name in crossing:
            slots[name] = at
            at += -(-max(4, 4 * bits(llvm_of(kind))) // 64) * 64
    local_offsets, local_at = {}, 0
    for variable in function.local.values():
        local_at = -(-local_at // variable.align) * variable.align
        local_offsets[variable.name] = local_at
        local_at += variable.size_bytes
    local_bytes = -(-local_at // 16) * 16
    return FunctionPlan(
        function, index, flow, live, slots, records, -(-at // 64) * 64, local_offsets, local_bytes
    )


class FunctionCompiler:
    """Generates the LLVM text of one function."""

    def __init__(
        self,
        module: ir.Module,
        plan_: FunctionPlan,
        plans: dict[str, FunctionPlan],
        tables: Tables,
        options: Options,
    ) -> None:
        self.module, self.plan, self.plans = module, plan_, plans
        self.function, self.index, self.flow = plan_.function, plan_.index, plan_.flow
        self.tables, self.options = tables, options
        self.entry_params = {p.name: p for p in self.function.params}
        self.e = Emitter()
        self.cache: dict[str, str] = {}
        self.dirty: set[str] = set()
        self.carry = constant("i1", 0)
        self.mask = self.mask_v = self.wait = ""
        self.block: cfg.Block = self.flow.blocks[0]
        self.here = ""
        self.guard: str | None = None
        self.incoming: dict[int, list[tuple[str, str, str]]] = {b.number: [] for b in self.flow.blocks}
        self.expired: list[tuple[str, str, str]] = []
        self.allocas: list[str] = []

    # -- values ------------------------------------------------------------------------------------

    def get(self, operand: ir.Operand | None, ptx_type: str) -> str:
        """Lanes of an operand, as the LLVM type of `ptx_type`."""
        llvm = llvm_of(ptx_type)
        if isinstance(operand, ir.Register):
            kind = llvm_of(self.function.registers[operand.name])
            value = self.read(operand.name)
            if operand.negated:
                value = self.e.binary("xor", "i1", value, constant("i1", 1))
            return self.e.cast(value, kind, llvm)
        if isinstance(operand, ir.Immediate):
            return self.immediate(operand, llvm)
        if isinstance(operand, ir.Special):
            value, kind = self.special(operand.name)
            return self.e.cast(value, kind, llvm)
        if isinstance(operand, ir.Symbol):
            return self.e.cast(self.symbol(operand), "i64", llvm)
        raise NotSupportedError(f"The virtual GPU cannot read the operand {operand!r}.")

    def immediate(self, operand: ir.Immediate, llvm: str) -> str:
        floating = llvm in ("float", "double", "half")
        value, width = operand.value, operand.float_bits
        if floating and width and width != bits(llvm):
            import struct

            wide = struct.unpack("<d" if width == 64 else "<f", value.to_bytes(width // 8, "little"))[0]
            code = {"double": "<d", "float": "<f", "half": "<e"}[llvm]
            value = int.from_bytes(struct.pack(code, wide), "little")
        return float_constant(llvm, value) if floating else constant(llvm, value)

    def slot(self, name: str) -> str:
        return self.e.op(f"getelementptr i8, ptr %frame, i64 {self.plan.slots[name]}")

    def read(self, name: str) -> str:
        if name in self.cache:
            return self.cache[name]
        llvm = llvm_of(self.function.registers[name])
        if name not in self.plan.slots:
            value = constant(llvm, 0) if llvm[0] == "i" else float_constant(llvm, 0)
        elif llvm == "i1":
            value = self.e.mask_vector(self.e.op(f"load i32, ptr {self.slot(name)}"))
        else:
            value = self.e.op(f"load {vector(llvm)}, ptr {self.slot(name)}, align 64")
        self.cache[name] = value
        return value

    def set(self, operand: ir.Operand | None, value: str, ptx_type: str) -> None:
        """Write lanes of `ptx_type` to a register; narrower values extend as PTX does."""
        if operand is None:
            return
        if not isinstance(operand, ir.Register):
            raise NotSupportedError(f"The virtual GPU cannot write to {operand!r}.")
        kind = self.function.registers[operand.name]
        value = self.e.cast(value, llvm_of(ptx_type), llvm_of(kind), ptx_type[0] == "s")
        if self.guard is not None:
            value = self.e.select(llvm_of(kind), self.guard, value, self.read(operand.name))
        self.cache[operand.name] = value
        self.dirty.add(operand.name)

    def special(self, name: str) -> tuple[str, str]:
        """Lanes of a special register and their LLVM type."""
        e = self.e
        if name.startswith("%tid."):
            base = e.op(f"inttoptr i64 {e.context_load('tids')} to ptr")
            row = e.op(f"mul i32 {e.context_load('warp')}, 384")
            at = e.op(f"add i32 {row}, {128 * _AXES[name[-1]]}")
            pointer = e.op(f"getelementptr i8, ptr {base}, i32 {at}")
            return e.op(f"load <32 x i32>, ptr {pointer}, align 4"), "i32"
        if name in _CONTEXT_SPECIALS:
            return e.splat("i32", e.context_load(_CONTEXT_SPECIALS[name])), "i32"
        if name == "%laneid":
            return warp_ops.LANE, "i32"
        if name.startswith("%lanemask_"):
            return self.lane_mask(name[-2:]), "i32"
        if name in ("%warpid", "%nwarpid"):
            return e.splat("i32", e.context_load(name[1:5] if name == "%warpid" else "warps")), "i32"
        if name in ("%clock", "%clock64", "%clock_hi", "%globaltimer", "%globaltimer_lo"):
            now = e.context_load("clock")
            if name == "%clock_hi":
                now = e.op(f"lshr i64 {now}, 32")
            return e.splat("i64", now), "i64"
        if name == "%smid":
            block = e.context_load("block_linear")
            count = e.op(f"zext i32 {e.context_load('sm_count')} to i64")
            return e.splat("i64", e.op(f"urem i64 {block}, {count}")), "i64"
        if name == "%nsmid":
            return e.splat("i32", e.context_load("sm_count")), "i32"
        if name in ("%dynamic_smem_size", "%total_smem_size", "%aggr_smem_size"):
            if name == "%dynamic_smem_size":
                return e.splat("i32", e.context_load("dynamic_shared_bytes")), "i32"
            return e.splat("i64", e.context_load("shared_bytes")), "i64"
        if name.startswith(_ZERO_SPECIALS):
            return constant("i32", 0), "i32"
        if name.startswith(_ONE_SPECIALS):
            return constant("i32", 1), "i32"
        if name == "%is_explicit_cluster":
            return constant("i1", 0), "i1"
        raise NotSupportedError(f"The virtual GPU does not know the special register {name}.")

    def lane_mask(self, relation: str) -> str:
        masks = {
            "eq": [1 << n for n in range(32)],
            "lt": [(1 << n) - 1 for n in range(32)],
            "le": [(2 << n) - 1 for n in range(32)],
            "gt": [0xFFFFFFFF & ~((2 << n) - 1) for n in range(32)],
            "ge": [0xFFFFFFFF & ~((1 << n) - 1) for n in range(32)],
        }[relation]
        return "<" + ", ".join(f"i32 {m}" for m in masks) + ">"

    def symbol(self, operand: ir.Symbol) -> str:
        """Address lanes (i64) of a variable: offsets for shared and local, host for the rest."""
        e, name = self.e, operand.name
        if name in self.tables.shared:
            return constant("i64", self.tables.shared[name] + operand.offset)
        if name in self.plan.local_offsets:
            place = self.plan.local_offsets[name] + operand.offset
            return e.splat("i64", e.op(f"add i64 %local_at, {place}"))
        if self.function.is_entry and name in self.entry_params:
            place = self.entry_params[name].offset + operand.offset
            return e.splat("i64", e.op(f"add i64 {e.context_load('params')}, {place}"))
        if name in self.module.variables:
            if name not in self.tables.globals:
                self.tables.globals.append(name)
            base = e.op(f"inttoptr i64 {e.context_load('globals')} to ptr")
            pointer = e.op(f"getelementptr i64, ptr {base}, i64 {self.tables.globals.index(name)}")
            address = e.op(f"load i64, ptr {pointer}")
            return e.splat("i64", e.op(f"add i64 {address}, {operand.offset}"))
        raise NotSupportedError(f"The virtual GPU cannot take the address of {name}.")

    def first_lane_value(self, operand: ir.Operand) -> str:
        """A uniform operand (a member mask) as an i32, read from the first active lane."""
        if isinstance(operand, ir.Immediate):
            return str(operand.value & 0xFFFFFFFF)
        lanes = self.get(operand, "b32")
        first = self.e.op(f"call i32 @llvm.cttz.i32(i32 {self.mask}, i1 false)")
        safe = self.e.op(f"and i32 {first}, 31")
        return self.e.op(f"extractelement <32 x i32> {lanes}, i32 {safe}")

    def executed(self, i: ir.Instruction) -> str:
        """Active lanes whose guard lets them execute the instruction, as an i32 mask."""
        if self.guard is None:
            return self.mask
        return self.e.op(f"and i32 {self.e.mask_bits(self.guard)}, {self.mask}")

    def parameter_record(self, name: str) -> tuple[int, int]:
        """Frame offset and lane stride (bytes) of a call parameter."""
        try:
            return self.plan.records[name]
        except KeyError:
            raise NotSupportedError(f"The virtual GPU does not know the parameter {name}.") from None

    def site(self, i: ir.Instruction) -> int:
        """Number of a memory instruction among the kernel's counted accesses."""
        self.tables.accesses.append((self.index, i))
        return len(self.tables.accesses) - 1

    def need(self, name: str, body: str) -> None:
        """Make sure a support function is part of the module."""
        self.tables.support.setdefault(name, body)

    def scratch(self, llvm: str) -> str:
        """Stack space of the LLVM function for one value."""
        name = "%" + self.e.name("stack")
        self.allocas.append(f"  {name} = alloca {llvm}")
        return name

    # -- control flow --------------------------------------------------------------------------------

    def leave_on_fault(self, failed: str) -> None:
        onward = self.e.name("ok")
        self.e.raw(f"br i1 {failed}, label %failed, label %{onward}")
        self.begin(onward)

    def begin(self, label: str) -> None:
        self.e.label(label)
        self.here = label

    def fault(self, code: int, pc: int, lane_mask: str | None = None) -> None:
        """End the warp function with a fault of the first lane of a mask."""
        lane = self.e.op(f"call i32 @llvm.cttz.i32(i32 {lane_mask or self.mask}, i1 false)")
        self.e.raw(
            f"call void @fault(ptr %ctx, i32 {code}, i32 {self.index}, i32 {pc}, i32 {lane}, i32 0, i64 0)"
        )
        self.e.raw("br label %failed")

    def flush(self) -> None:
        """Store written registers that later blocks read, for the active lanes only."""
        live = self.plan.live_out[self.block.number]
        for name in sorted(self.dirty & live):
            llvm = llvm_of(self.function.registers[name])
            value = self.cache[name]
            pointer = self.slot(name)
            if llvm == "i1":
                old = self.e.op(f"load i32, ptr {pointer}")
                kept = self.e.op(f"and i32 {old}, {self.e.op(f'xor i32 {self.mask}, -1')}")
                new = self.e.op(f"and i32 {self.e.mask_bits(value)}, {self.mask}")
                self.e.raw(f"store i32 {self.e.op(f'or i32 {kept}, {new}')}, ptr {pointer}")
                continue
            raw = f"i{bits(llvm)}"
            value = self.e.cast(value, llvm, raw)
            name_ = f"llvm.masked.store.v32{raw}.p0"
            self.e.declared.add(f"declare void @{name_}({vector(raw)}, ptr, <32 x i1>)")
            self.e.raw(
                f"call void @{name_}({vector(raw)} {value}, ptr align 64 {pointer}, <32 x i1> {self.mask_v})"
            )
        self.dirty.clear()

    def store_pcs(self, lanes: str, target: str) -> None:
        """Write a program-counter vector to the lanes of an i1 vector."""
        self.e.raw(
            f"call void @llvm.masked.store.v32i32.p0(<32 x i32> {target}, ptr align 64 %frame, <32 x i1> {lanes})"
        )
        self.e.declared.add("declare void @llvm.masked.store.v32i32.p0(<32 x i32>, ptr, <32 x i1>)")

    def go_to(self, target: int) -> None:
        """All active lanes continue at one block: directly, unless others wait at or before it."""
        e = self.e
        if target <= self.block.number:
            left = e.op(f"sub i32 {e.context_load('budget')}, 1")
            e.context_store("budget", left)
            spent = e.op(f"icmp sle i32 {left}, 0")
            over, onward = e.name("spent"), e.name("more")
            e.raw(f"br i1 {spent}, label %{over}, label %{onward}")
            self.begin(over)
            self.store_pcs(self.mask_v, constant("i32", target))
            e.raw("br label %expired")
            first = self.flow.blocks[target].first
            self.expired.append((str(target), str(first), over))
            self.begin(onward)
        ahead = e.op(f"icmp ult i32 {target}, {self.wait}")
        park, here = e.name("wait"), self.here
        e.raw(f"br i1 {ahead}, label %bb{target}, label %{park}")
        self.incoming[target].append((self.mask, self.wait, here))
        self.begin(park)
        self.store_pcs(self.mask_v, constant("i32", target))
        e.raw("br label %dispatch")

    def branch(self, i: ir.Instruction, taken_block: int, next_block: int) -> None:
        """A conditional branch: uniform ones go straight on, divergent ones through the dispatcher."""
        e = self.e
        assert self.guard is not None
        taken = self.executed(i)
        others = e.op(f"and i32 {self.mask}, {e.op(f'xor i32 {taken}, -1')}")
        none_stay = e.op(f"icmp eq i32 {others}, 0")
        none_go = e.op(f"icmp eq i32 {taken}, 0")
        if self.options.count:
            number = len(self.tables.branches)
            self.tables.branches.append((self.index, i))
            base = e.op(f"inttoptr i64 {e.context_load('branch_counters')} to ptr")
            executed = e.op(f"getelementptr i64, ptr {base}, i64 {2 * number}")
            e.add_to(executed, "1")
            uniform = e.op(f"or i1 {none_stay}, {none_go}")
            split = e.op(f"zext i1 {e.op(f'xor i1 {uniform}, true')} to i64")
            e.add_to(e.op(f"getelementptr i64, ptr {executed}, i64 1"), split)
        guard = self.guard
        self.guard = None
        go, check, stay, split_label = (e.name(s) for s in ("go", "check", "stay", "split"))
        e.raw(f"br i1 {none_stay}, label %{go}, label %{check}")
        self.begin(go)
        self.go_to(taken_block)
        self.begin(check)
        e.raw(f"br i1 {none_go}, label %{stay}, label %{split_label}")
        self.begin(stay)
        self.go_to(next_block)
        self.begin(split_label)
        where = e.select("i32", guard, constant("i32", taken_block), constant("i32", next_block))
        self.store_pcs(self.mask_v, where)
        e.raw("br label %dispatch")

    def next_block(self) -> int:
        return self.flow.number_of.get(self.block.end, -1)

    def leave(self, target: str) -> None:
        """Active (and unguarded) lanes go to a mark such as EXITED; guarded-off lanes go on."""
        e = self.e
        where = target
        if self.guard is not None:
            where = e.select("i32", self.guard, target, constant("i32", max(self.next_block(), 0)))
        self.store_pcs(self.mask_v, where)
        e.raw("br label %dispatch")

    def terminate(self, i: ir.Instruction | None) -> None:
        root = i.root if i else ""
        if i is not None and root == "bra":
            target = self.flow.number_of[i.target]
            if self.guard is not None and self.next_block() >= 0:
                self.branch(i, target, self.next_block())
            else:
                self.go_to(target)
        elif i is not None and root == "brx":
            which = self.get(i.operands[0], "u32")
            where = constant("i32", self.flow.number_of[i.targets[0]])
            for number, instruction_index in enumerate(i.targets[1:], 1):
                hit = self.e.compare("eq", "i32", which, constant("i32", number))
                where = self.e.select(
                    "i32", hit, constant("i32", self.flow.number_of[instruction_index]), where
                )
            self.leave(where)
        elif root in ("ret", "exit"):
            if root == "exit" and i is not None:
                gone = self.e.op(f"or i32 {self.e.context_load('exited')}, {self.executed(i)}")
                self.e.context_store("exited", gone)
            self.leave(constant("i32", layout.EXITED))
        elif i is not None and root == "trap":
            self.trap(i)
        elif i is not None and cfg.is_block_barrier(i):
            self.barrier(i)
        elif self.next_block() >= 0:
            self.go_to(self.next_block())
        else:
            self.leave(constant("i32", layout.EXITED))

    def trap(self, i: ir.Instruction) -> None:
        if self.guard is None:
            self.fault(layout.TRAPPED, i.pc)
            return
        hit, onward = self.e.name("trap"), self.e.name("ok")
        lanes = self.executed(i)
        some = self.e.op(f"icmp ne i32 {lanes}, 0")
        self.e.raw(f"br i1 {some}, label %{hit}, label %{onward}")
        self.begin(hit)
        self.fault(layout.TRAPPED, i.pc, lanes)
        self.begin(onward)
        self.go_to(self.next_block())

    def barrier(self, i: ir.Instruction) -> None:
        if "red" in i.parts or "arrive" in i.parts or len(i.operands) > 1:
            raise NotSupportedError(f"The virtual GPU does not do {i.text!r}; use __syncthreads().")
        if not self.function.is_entry:
            self.fault(layout.NESTED_BARRIER, i.pc)
            return
        self.leave(constant("i32", layout.AT_BARRIER + max(self.next_block(), 0)))

    # -- blocks --------------------------------------------------------------------------------------

    def meet(self, i: ir.Instruction) -> None:
        """At a warp-wide instruction: wait until every live lane its mask names is here."""
        operand = warp_ops.member_mask(i)
        if operand is None:
            return
        e, number = self.e, self.block.number
        named = self.first_lane_value(operand)
        pcs = e.op("load <32 x i32>, ptr %frame, align 64")
        gone = e.mask_bits(e.compare("eq", "i32", pcs, constant("i32", layout.EXITED)))
        alive = e.op(f"or i32 {e.op(f'xor i32 {gone}, -1')}, {self.mask}")
        needed = e.op(f"and i32 {named}, {alive}")
        missing = e.op(f"and i32 {needed}, {e.op(f'xor i32 {self.mask}, -1')}")
        complete = e.op(f"icmp eq i32 {missing}, 0")
        first, gather, park, force, held = (
            self.here, e.name("gather"), e.name("park"), e.name("force"), e.name("held"),
        )  # fmt: skip
        met = e.name("met")
        e.raw(f"br i1 {complete}, label %{met}, label %{gather}")
        self.begin(gather)
        waiting = e.mask_bits(e.compare("eq", "i32", pcs, constant("i32", layout.PARKED + number)))
        together = e.op(f"or i32 {self.mask}, {waiting}")
        still = e.op(f"and i32 {needed}, {e.op(f'xor i32 {together}, -1')}")
        all_here = e.op(f"icmp eq i32 {still}, 0")
        e.raw(f"br i1 {all_here}, label %{met}, label %{force}")
        self.begin(force)
        forced = e.op(f"icmp ne i32 {e.context_load('forced')}, 0")
        e.raw(f"br i1 {forced}, label %{held}, label %{park}")
        self.begin(held)
        e.context_store("forced", "0")
        if i.root not in ("bar", "barrier"):
            e.context_store("unmet_function", str(self.index + 1))
            e.context_store("unmet_pc", str(i.pc))
        e.raw(f"br label %{met}")
        self.begin(park)
        self.store_pcs(self.mask_v, constant("i32", layout.PARKED + number))
        e.raw("br label %dispatch")
        self.begin(met)
        self.mask = e.op(f"phi i32 [{self.mask}, %{first}], [{together}, %{gather}], [{together}, %{held}]")
        self.mask_v = e.mask_vector(self.mask)
        self.cache.clear()

    def count_block(self) -> None:
        e, number = self.e, len(self.tables.blocks)
        size = self.block.end - self.block.first
        e.add_to(e.context_pointer("clock"), str(size))
        self.tables.blocks.append((self.index, self.block))
        if self.options.count:
            base = e.op(f"inttoptr i64 {e.context_load('block_counters')} to ptr")
            pointer = e.op(f"getelementptr i64, ptr {base}, i64 {2 * number}")
            e.add_to(pointer, "1")
            lanes = e.op(f"zext i32 {e.op(f'call i32 @llvm.ctpop.i32(i32 {self.mask})')} to i64")
            e.add_to(e.op(f"getelementptr i64, ptr {pointer}, i64 1"), lanes)

    def instruction(self, i: ir.Instruction) -> None:
        if i.root in _NOTHING_TO_DO:
            return
        for handler in (memory_ops.emit, arith.emit, bitops.emit, warp_ops.emit, calls.emit):
            if handler(self, i):
                break
        else:
            raise NotSupportedError(
                f"The virtual GPU does not do {i.opcode} (line {i.line}); "
                f"run this kernel on a real GPU or write it without that instruction."
            )
        if self.options.trace:
            self.trace_value(i)

    def trace_step(self, i: ir.Instruction) -> None:
        executed = self.executed(i)
        self.e.raw(
            f"call void @trace_step(ptr %ctx, i32 {self.index}, i32 {i.pc}, i32 {self.mask}, i32 {executed})"
        )

    def trace_address(self, address: str, mask: str) -> None:
        if self.options.trace:
            where = layout.TRACE_STEP.fields["address"][1]  # type: ignore[index]
            self.e.raw(f"call void @trace_lanes(ptr %ctx, <32 x i64> {address}, i32 {mask}, i64 {where})")

    def trace_value(self, i: ir.Instruction) -> None:
        defined, _ = cfg.definitions_and_uses(i)
        if defined and defined[0] in self.cache:
            llvm = llvm_of(self.function.registers[defined[0]])
            value = self.e.cast(self.cache[defined[0]], llvm, "i64")
            where = layout.TRACE_STEP.fields["value"][1]  # type: ignore[index]
            self.e.raw(
                f"call void @trace_lanes(ptr %ctx, <32 x i64> {value}, i32 {self.executed(i)}, i64 {where})"
            )

    def compile_block(self, block: cfg.Block) -> None:
        e = self.e
        self.block, self.cache, self.dirty = block, {}, set()
        self.carry, self.guard = constant("i1", 0), None
        self.begin(f"bb{block.number}")
        e.lines.append(f"@phi {block.number}")
        self.mask, self.wait = f"%m{block.number}", f"%w{block.number}"
        self.mask_v = e.mask_vector(self.mask)
        code = self.function.instructions[block.first : block.end]
        if code and cfg.is_warp_meeting(code[0]):
            self.meet(code[0])
        self.count_block()
        last = code[-1] if code else None
        ends = last is not None and (
            last.root in ("bra", "brx", "ret", "exit", "trap") or cfg.is_block_barrier(last)
        )
        for i in code:
            self.guard = None
            if i.guard is not None:
                guard = self.read(i.guard)
                self.guard = e.binary("xor", "i1", guard, constant("i1", 1)) if i.guard_negated else guard
            if self.options.trace:
                self.trace_step(i)
            if i is last and ends:
                break
            self.instruction(i)
        if not ends:
            self.guard = None
        self.flush()
        self.terminate(last if ends else None)

    def compile(self) -> str:
        """The LLVM text of the whole function."""
        for block in self.flow.blocks:
            self.compile_block(block)
        body = self.e.lines
        self.e.lines = []
        self.prologue()
        head = [*self.e.lines[:1], *self.allocas, *self.e.lines[1:]]
        lines = [*head, *(self.phis(line) if line.startswith("@phi") else line for line in body), "}"]
        header = f"define internal i32 @{self.plan.symbol}(ptr noalias %ctx, ptr noalias %frame, i32 %lanes, i64 %local_at) {{"
        return "\n".join([header, *lines])

    def phis(self, line: str) -> str:
        number = int(line.split()[1])
        masks = ", ".join(f"[{m}, %{label}]" for m, _, label in self.incoming[number])
        waits = ", ".join(f"[{w}, %{label}]" for _, w, label in self.incoming[number])
        masks = f"[%go.mask, %switch]{', ' if masks else ''}{masks}"
        waits = f"[%go.wait, %switch]{', ' if waits else ''}{waits}"
        return f"  %m{number} = phi i32 {masks}\n  %w{number} = phi i32 {waits}"

    def prologue(self) -> None:
        """Entry, dispatcher, and the exits every block shares."""
        e = self.e
        e.label("entry")
        e.raw("br label %dispatch")
        self.begin("dispatch")
        cases = " ".join(f"i32 {b.number}, label %bb{b.number}" for b in self.flow.blocks)
        e.lines += [
            "  %d.pcs = load <32 x i32>, ptr %frame, align 64",
            "  %d.low = call i32 @llvm.vector.reduce.umin.v32i32(<32 x i32> %d.pcs)",
            "  %d.lows0 = insertelement <32 x i32> poison, i32 %d.low, i32 0",
            "  %d.lows = shufflevector <32 x i32> %d.lows0, <32 x i32> poison, <32 x i32> zeroinitializer",
            "  %d.is = icmp eq <32 x i32> %d.pcs, %d.lows",
            "  %d.mask = bitcast <32 x i1> %d.is to i32",
            "  %d.rest = select <32 x i1> %d.is, <32 x i32> splat (i32 -1), <32 x i32> %d.pcs",
            "  %d.wait = call i32 @llvm.vector.reduce.umin.v32i32(<32 x i32> %d.rest)",
            "  br label %switch",
            "switch:",
            "  %go.pc = phi i32 [%d.low, %dispatch]" + (", [%r.pc, %rotate]" if self.expired else ""),
            "  %go.mask = phi i32 [%d.mask, %dispatch]" + (", [%r.mask, %rotate]" if self.expired else ""),
            "  %go.wait = phi i32 [%d.wait, %dispatch]" + (", [-1, %rotate]" if self.expired else ""),
            f"  switch i32 %go.pc, label %other [{cases}]",
            "other:",
            f"  %o.done = icmp eq i32 %go.pc, {layout.EXITED}",
            "  br i1 %o.done, label %done, label %o1",
            "done:",
            f"  ret i32 {layout.DONE}",
            "o1:",
            f"  %o.barrier = icmp uge i32 %go.pc, {layout.AT_BARRIER}",
            "  br i1 %o.barrier, label %waits, label %parked",
            "waits:",
            f"  ret i32 {layout.WAITS}",
            # Only lanes that wait for each other are left: let the first of them go on alone.
            "parked:",
            f"  %o.pc = sub i32 %go.pc, {layout.PARKED}",
            "  %o.pcs0 = insertelement <32 x i32> poison, i32 %o.pc, i32 0",
            "  %o.pcs = shufflevector <32 x i32> %o.pcs0, <32 x i32> poison, <32 x i32> zeroinitializer",
            "  %o.new = select <32 x i1> %d.is, <32 x i32> %o.pcs, <32 x i32> %d.pcs",
            "  store <32 x i32> %o.new, ptr %frame, align 64",
        ]
        e.context_store("forced", "1")
        e.raw("br label %dispatch")
        self.begin("failed")
        e.raw(f"ret i32 {layout.FAULT}")
        if self.expired:
            self.rotation()

    def rotation(self) -> None:
        """After many back edges: look at the abort flag, then give waiting lanes or warps a turn."""
        e = self.e
        self.begin("expired")
        targets = ", ".join(f"[{t}, %{label}]" for t, _, label in self.expired)
        firsts = ", ".join(f"[{f}, %{label}]" for _, f, label in self.expired)
        e.lines += [f"  %x.block = phi i32 {targets}", f"  %x.pc = phi i32 {firsts}"]
        e.context_store("budget", str(layout.BACK_EDGE_BUDGET))
        flag_pointer = e.op(f"inttoptr i64 {e.context_load('abort_flag')} to ptr")
        flag = e.op(f"load atomic i32, ptr {flag_pointer} monotonic, align 4")
        stop = e.op(f"icmp ne i32 {flag}, 0")
        e.raw(f"br i1 {stop}, label %aborted, label %turn")
        self.begin("aborted")
        pcs = e.op("load <32 x i32>, ptr %frame, align 64")
        mine = e.mask_bits(e.compare("eq", "i32", pcs, e.splat("i32", "%x.block")))
        lane = e.op(f"call i32 @llvm.cttz.i32(i32 {mine}, i1 false)")
        e.raw(
            f"call void @fault(ptr %ctx, i32 {layout.ABORTED}, i32 {self.index}, i32 %x.pc, i32 {lane}, i32 0, i64 0)"
        )
        e.raw("br label %failed")
        self.begin("turn")
        e.lines += [
            "  %r.pcs = load <32 x i32>, ptr %frame, align 64",
            "  %r.now0 = insertelement <32 x i32> poison, i32 %x.block, i32 0",
            "  %r.now = shufflevector <32 x i32> %r.now0, <32 x i32> poison, <32 x i32> zeroinitializer",
            "  %r.later = icmp ugt <32 x i32> %r.pcs, %r.now",
            "  %r.rest = select <32 x i1> %r.later, <32 x i32> %r.pcs, <32 x i32> splat (i32 -1)",
            "  %r.pc = call i32 @llvm.vector.reduce.umin.v32i32(<32 x i32> %r.rest)",
            f"  %r.can = icmp ult i32 %r.pc, {layout.PARKED}",
            "  br i1 %r.can, label %rotate, label %yield",
            "rotate:",
            "  %r.sel0 = insertelement <32 x i32> poison, i32 %r.pc, i32 0",
            "  %r.sel = shufflevector <32 x i32> %r.sel0, <32 x i32> poison, <32 x i32> zeroinitializer",
            "  %r.is = icmp eq <32 x i32> %r.pcs, %r.sel",
            "  %r.mask = bitcast <32 x i1> %r.is to i32",
            "  br label %switch",
            "yield:",
        ]
        e.raw(f"ret i32 {layout.YIELDS}" if self.function.is_entry else "br label %dispatch")
