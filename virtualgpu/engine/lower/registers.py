"""Operands of a function during its compilation: registers, constants, special registers, symbols."""

from __future__ import annotations

import struct

from virtualgpu.compile.ptx import ir
from virtualgpu.compile.ptx.flow import cfg
from virtualgpu.engine.ir import layout
from virtualgpu.engine.ir.emit import Emitter, constant, float_constant, get_bit_width, llvm_of, vector
from virtualgpu.engine.ir.text import LANE_INDICES_I32
from virtualgpu.engine.lower.loops import Loop
from virtualgpu.engine.lower.plan import CodeOptions, FunctionPlan, KernelTables
from virtualgpu.errors import NotSupportedError

_CONTEXT_SPECIAL_REGISTERS = {
    f"%{name}.{axis}": f"{name}_{axis}" for name in ("ntid", "ctaid", "nctaid") for axis in "xyz"
}
_AXES = {"x": 0, "y": 1, "z": 2}
_ZERO_SPECIAL_REGISTERS = (
    "%gridid",
    "%cluster_ctarank",
    "%clusterid",
    "%cluster_ctaid",
    "%envreg",
)
_ONE_SPECIAL_REGISTERS = ("%nclusterid", "%cluster_nctaid", "%cluster_nctarank")


class Registers:
    """An interface through which instruction emitters read and write the operands of a function."""

    def __init__(
        self,
        module: ir.Module,
        function_plan: FunctionPlan,
        plans: dict[str, FunctionPlan],
        tables: KernelTables,
        options: CodeOptions,
    ) -> None:
        self.module = module
        self.plan = function_plan
        self.plans = plans
        self.function = function_plan.function
        self.index = function_plan.index
        self.control_flow = function_plan.control_flow
        self.tables = tables
        self.options = options
        self.entry_params = {parameter.name: parameter for parameter in self.function.params}
        self.emitter = Emitter(options.has_mask_registers)
        self.cached_values: dict[str, str] = {}
        self.changed_registers: set[str] = set()
        self.carry_flag = constant("i1", 0)
        self.mask = self.wait = ""
        self._active_lanes_by_block: dict[tuple[str, str], str] = {}
        self._read_names: set[str] | None = None
        self.loop: Loop | None = None
        self.block: cfg.Block = self.control_flow.blocks[0]
        self.current_label = ""
        self.guard: str | None = None
        self.incoming_edges: dict[int, list[tuple[str, str, str]]] = {
            b.number: [] for b in self.control_flow.blocks
        }
        self.expired_edges: list[tuple[str, str, str, str]] = []
        self.allocas: list[str] = []
        self.has_meetings = False  # lanes wait for each other at some warp-wide instruction

    @property
    def active_lanes(self) -> str:
        """Active lanes as an i1 vector. Each LLVM block that uses the vector computes it again."""
        label_and_mask = self.current_label, self.mask
        if label_and_mask not in self._active_lanes_by_block:
            self._active_lanes_by_block = {label_and_mask: self.emitter.mask_vector(self.mask)}
        return self._active_lanes_by_block[label_and_mask]

    def get(self, operand: ir.Operand | None, ptx_type: str) -> str:
        """Return the values of an operand in all lanes, with the LLVM type for `ptx_type`."""
        llvm_type = llvm_of(ptx_type)
        if isinstance(operand, ir.Register):
            stored_type = llvm_of(self.function.registers[operand.name])
            value = self.read_register(operand.name)
            if operand.negated:
                value = self.emitter.binary("xor", "i1", value, constant("i1", 1))
            return self.emitter.cast(value, stored_type, llvm_type)
        if isinstance(operand, ir.Immediate):
            return self.format_immediate(operand, llvm_type)
        if isinstance(operand, ir.Special):
            value, stored_type = self.read_special(operand.name)
            return self.emitter.cast(value, stored_type, llvm_type)
        if isinstance(operand, ir.Symbol):
            return self.emitter.cast(self.emit_symbol_address(operand), "i64", llvm_type)
        raise NotSupportedError(f"The virtual GPU cannot read the operand {operand!r}.")

    def is_register_read(self, operand: ir.Operand | None) -> bool:
        """Return whether any instruction of the function reads the register."""
        if self._read_names is None:
            used_names_of_all = (
                cfg.find_definitions_and_uses(instruction)[1] for instruction in self.function.instructions
            )
            self._read_names = {name for used_names in used_names_of_all for name in used_names}
        return isinstance(operand, ir.Register) and operand.name in self._read_names

    def known_value(self, operand: ir.Operand | None) -> int | None:
        """Return the integer value of a constant operand, or None for any other operand."""
        if isinstance(operand, ir.Register):
            operand = self.plan.constant_registers.get(operand.name)
        return operand.value if isinstance(operand, ir.Immediate) and not operand.float_bits else None

    def format_immediate(self, operand: ir.Immediate, llvm_type: str) -> str:
        is_float = llvm_type in ("float", "double", "half")
        value = operand.value
        literal_bits = operand.float_bits
        if is_float and literal_bits and literal_bits != get_bit_width(llvm_type):
            (float_value,) = struct.unpack(
                "<d" if literal_bits == 64 else "<f", value.to_bytes(literal_bits // 8, "little")
            )
            struct_format = {"double": "<d", "float": "<f", "half": "<e"}[llvm_type]
            value = int.from_bytes(struct.pack(struct_format, float_value), "little")
        return float_constant(llvm_type, value) if is_float else constant(llvm_type, value)

    def emit_slot_pointer(self, name: str) -> str:
        return self.emitter.op(f"getelementptr i8, ptr %frame, i64 {self.plan.register_slots[name]}")

    def read_register(self, name: str) -> str:
        if name in self.cached_values:
            return self.cached_values[name]
        llvm_type = llvm_of(self.function.registers[name])
        if name in self.plan.constant_registers:
            value = self.format_immediate(self.plan.constant_registers[name], llvm_type)
        elif name not in self.plan.register_slots:
            value = constant(llvm_type, 0) if llvm_type[0] == "i" else float_constant(llvm_type, 0)
        elif self.loop is not None:
            value = self.loop.read_register(name)
        elif llvm_type == "i1":
            value = self.emitter.mask_vector(self.emitter.op(f"load i32, ptr {self.emit_slot_pointer(name)}"))
        else:
            value = self.emitter.op(f"load {vector(llvm_type)}, ptr {self.emit_slot_pointer(name)}, align 64")
        self.cached_values[name] = value
        return value

    def set(self, operand: ir.Operand | None, value: str, ptx_type: str) -> None:
        """Write values of the type `ptx_type` to a register in all lanes. Narrower values are extended as in
        PTX.
        """
        if operand is None:
            return
        if not isinstance(operand, ir.Register):
            raise NotSupportedError(f"The virtual GPU cannot write to {operand!r}.")
        register_type = self.function.registers[operand.name]
        value = self.emitter.cast(value, llvm_of(ptx_type), llvm_of(register_type), ptx_type[0] == "s")
        if self.guard is not None:
            value = self.emitter.select(
                llvm_of(register_type), self.guard, value, self.read_register(operand.name)
            )
        self.cached_values[operand.name] = value
        self.changed_registers.add(operand.name)

    def read_special(self, name: str) -> tuple[str, str]:
        """Return the values of a special register in all lanes, and their LLVM type."""
        emitter = self.emitter
        if name.startswith("%tid."):
            indices_pointer = emitter.op(f"inttoptr i64 {emitter.context_load('tids')} to ptr")
            warp_offset = emitter.op(f"mul i32 {emitter.context_load('warp')}, 384")
            offset = emitter.op(f"add i32 {warp_offset}, {128 * _AXES[name[-1]]}")
            pointer = emitter.op(f"getelementptr i8, ptr {indices_pointer}, i32 {offset}")
            return emitter.op(f"load <32 x i32>, ptr {pointer}, align 4"), "i32"
        if name in _CONTEXT_SPECIAL_REGISTERS:
            return emitter.splat("i32", emitter.context_load(_CONTEXT_SPECIAL_REGISTERS[name])), "i32"
        if name == "%laneid":
            return LANE_INDICES_I32, "i32"
        if name.startswith("%lanemask_"):
            return self.lane_mask(name[-2:]), "i32"
        if name in ("%warpid", "%nwarpid"):
            warps = emitter.context_load("warps")
            if name == "%nwarpid":
                return emitter.splat("i32", warps), "i32"
            # The warp's slot on its SM, of 32 on the smallest: not its number in the block.
            block_index = emitter.op(f"trunc i64 {emitter.context_load('block_linear')} to i32")
            block_slot = emitter.op(
                f"add i32 {emitter.op(f'mul i32 {block_index}, {warps}')}, {emitter.context_load('warp')}"
            )
            return emitter.splat("i32", emitter.op(f"and i32 {block_slot}, 31")), "i32"
        if name in ("%clock", "%clock64", "%clock_hi", "%globaltimer", "%globaltimer_lo"):
            clock = emitter.context_load("clock")
            if name == "%clock_hi":
                clock = emitter.op(f"lshr i64 {clock}, 32")
            return emitter.splat("i64", clock), "i64"
        if name == "%smid":
            block_index = emitter.context_load("block_linear")
            sm_count = emitter.op(f"zext i32 {emitter.context_load('sm_count')} to i64")
            return emitter.splat("i64", emitter.op(f"urem i64 {block_index}, {sm_count}")), "i64"
        if name == "%nsmid":
            return emitter.splat("i32", emitter.context_load("sm_count")), "i32"
        if name in ("%dynamic_smem_size", "%total_smem_size", "%aggr_smem_size"):
            if name == "%dynamic_smem_size":
                return emitter.splat("i32", emitter.context_load("dynamic_shared_bytes")), "i32"
            return emitter.splat("i64", emitter.context_load("shared_bytes")), "i64"
        if name in ("%envreg1", "%envreg2"):
            # Cooperative groups read the driver's grid workspace from here, high word first.
            address = emitter.context_load("grid_workspace")
            address_word = emitter.op(f"lshr i64 {address}, 32") if name == "%envreg1" else address
            return emitter.splat("i64", address_word), "i64"
        if name.startswith(layout.RESERVED_SHARED_NAME):
            reserved_bytes = layout.RESERVED_SHARED_BYTES if name.endswith(("_end", "_cap")) else 0
            return constant("i32", self.tables.shared[layout.RESERVED_SHARED_NAME] + reserved_bytes), "i32"
        if name.startswith(_ZERO_SPECIAL_REGISTERS):
            return constant("i32", 0), "i32"
        if name.startswith(_ONE_SPECIAL_REGISTERS):
            return constant("i32", 1), "i32"
        if name == "%is_explicit_cluster":
            return constant("i1", 0), "i1"
        raise NotSupportedError(f"The virtual GPU does not support the special register {name}.")

    def lane_mask(self, relation: str) -> str:
        lane_masks = {
            "eq": [1 << n for n in range(32)],
            "lt": [(1 << n) - 1 for n in range(32)],
            "le": [(2 << n) - 1 for n in range(32)],
            "gt": [0xFFFFFFFF & ~((2 << n) - 1) for n in range(32)],
            "ge": [0xFFFFFFFF & ~((1 << n) - 1) for n in range(32)],
        }[relation]
        return "<" + ", ".join(f"i32 {lane_value}" for lane_value in lane_masks) + ">"

    def emit_symbol_address(self, operand: ir.Symbol) -> str:
        """Return the address (i64) of a variable in all lanes.

        The address of a shared or local variable is an offset; other addresses are host addresses.
        """
        emitter = self.emitter
        name = operand.name
        if name in self.tables.shared:
            return constant("i64", self.tables.shared[name] + operand.offset)
        if name in self.plan.local_offsets:
            offset = self.plan.local_offsets[name] + operand.offset
            return emitter.splat("i64", emitter.op(f"add i64 %local_at, {offset}"))
        if self.function.is_entry and name in self.entry_params:
            offset = self.entry_params[name].offset + operand.offset
            return emitter.splat("i64", emitter.op(f"add i64 {emitter.context_load('params')}, {offset}"))
        shared_variable = self.module.variables.get(name)
        if shared_variable is not None and shared_variable.space in ("global", "const"):
            if name not in self.tables.global_names:
                self.tables.global_names.append(name)
            globals_pointer = emitter.op(f"inttoptr i64 {emitter.context_load('globals')} to ptr")
            pointer = emitter.op(
                f"getelementptr i64, ptr {globals_pointer}, i64 {self.tables.global_names.index(name)}"
            )
            address = emitter.op(f"load i64, ptr {pointer}")
            return emitter.splat("i64", emitter.op(f"add i64 {address}, {operand.offset}"))
        if name in self.module.functions:
            return constant("i64", layout.FUNCTION_TAG | list(self.module.functions).index(name))
        raise NotSupportedError(f"The virtual GPU cannot take the address of {name}.")

    def emit_first_lane_value(self, operand: ir.Operand) -> str:
        """Emit, as an i32, the value of an operand that is the same in all lanes, such as a member mask.

        The value is read from the first active lane.
        """
        if isinstance(operand, ir.Immediate):
            return str(operand.value & 0xFFFFFFFF)
        lanes = self.get(operand, "b32")
        first_lane = self.emitter.op(f"call i32 @llvm.cttz.i32(i32 {self.mask}, i1 false)")
        lane_index = self.emitter.op(f"and i32 {first_lane}, 31")
        return self.emitter.op(f"extractelement <32 x i32> {lanes}, i32 {lane_index}")

    def executed_mask(self, instruction: ir.Instruction) -> str:
        """Emit a mask of the active lanes in which the guard of the instruction is true."""
        if self.guard is None:
            return self.mask
        return self.emitter.op(f"and i32 {self.emitter.mask_bits(self.guard)}, {self.mask}")

    def parameter_record(self, name: str) -> tuple[int, int]:
        """Return the frame offset of a call parameter and the distance between its lanes, in bytes."""
        try:
            return self.plan.parameter_records[name]
        except KeyError:
            raise NotSupportedError(
                f"The virtual GPU cannot find the parameter {name} of this function."
            ) from None

    def assign_access_number(self, instruction: ir.Instruction) -> int:
        """Assign the kernel's next access number to a memory instruction, and return the number."""
        self.tables.accesses.append((self.index, instruction))
        return len(self.tables.accesses) - 1

    def add_support_function(self, name: str, body: str) -> None:
        """Add a support function to the module, unless the module contains it already."""
        self.tables.support_functions.setdefault(name, body)

    def allocate_scratch(self, llvm_type: str) -> str:
        """Allocate space for one value on the stack of the LLVM function."""
        name = "%" + self.emitter.name("stack")
        self.allocas.append(f"  {name} = alloca {llvm_type}")
        return name
