"""Reports from generated code: steps and values to a trace, accesses to an observer."""

from __future__ import annotations

from virtualgpu.compile.ptx import ir
from virtualgpu.compile.ptx.flow import cfg
from virtualgpu.engine.ir import layout
from virtualgpu.engine.ir.emit import constant, get_bit_width, llvm_of
from virtualgpu.engine.lower.registers import Registers

_MEMORY_WRITING_ROOTS = {"st", "atom", "red", "cp", "mbarrier", "wmma", "stmatrix"}


def _may_write_shared(instruction: ir.Instruction) -> bool:
    """Return whether an instruction may change shared memory, including through generic addresses."""
    spaces = {modifier.split("::")[0] for modifier in instruction.parts[1:]}
    return instruction.root in _MEMORY_WRITING_ROOTS and (
        instruction.root == "cp" or "shared" in spaces or spaces.isdisjoint(("global", "local", "param"))
    )


class ReportingRegisters(Registers):
    """The operands of a function, with methods that emit trace records and calls of an observer."""

    def trace_step(self, instruction: ir.Instruction) -> None:
        executed_mask = self.executed_mask(instruction)
        trace_level = (
            layout.TRACE_ALL if _may_write_shared(instruction) else layout.TRACE_ALL & ~layout.TRACE_SHARED
        )
        if instruction.origin is not None:
            self.emitter.context_store("depth", str(instruction.call_depth))
        self.emitter.raw(
            f"call void @trace_step(ptr %ctx, i32 {self.index}, i32 {instruction.pc}, i32 {self.mask}, "
            f"i32 {executed_mask}, i32 {trace_level})"
        )

    def trace_row(self, lanes: str, mask: str, kind: int, level: int = layout.TRACE_ALL) -> None:
        self.emitter.raw(
            f"call void @trace_row(ptr %ctx, <32 x i64> {lanes}, i32 {mask}, i32 {kind}, i32 {level})"
        )

    def trace_address(self, address: str, mask: str) -> None:
        if self.options.is_traced:
            self.trace_row(address, mask, layout.ROW_ADDRESS, layout.TRACE_ALL & ~layout.TRACE_SHARED)

    def trace_write(self, value: str, llvm_type: str, host_address: str, mask: str) -> None:
        """Emit trace records with the host address and the bits of a write. Each record contains at most 8
        bytes of data.
        """
        if not self.options.is_traced:
            return
        value_bits = get_bit_width(llvm_type)
        for first_bit in range(0, value_bits, 64):
            chunk_bits = value
            address = host_address
            if value_bits > 64:
                chunk_bits = (
                    self.emitter.binary("lshr", llvm_type, value, constant(llvm_type, first_bit))
                    if first_bit
                    else value
                )
                address = (
                    self.emitter.binary("add", "i64", host_address, constant("i64", first_bit // 8))
                    if first_bit
                    else host_address
                )
            self.trace_row(address, mask, layout.ROW_HOST_ADDRESS)
            chunk_bytes = min(value_bits, 64) // 8
            self.trace_row(
                self.emitter.cast(chunk_bits, llvm_type, "i64"), mask, layout.ROW_WRITTEN + chunk_bytes
            )

    def report_to_observer(self, site: int, address: str, mask: str, stored_values: str = "") -> None:
        """Emit a call that reports an access and its stored values to the observer before the access."""
        address_pointer = self.allocate_scratch("<32 x i64>")
        values_pointer = "null"
        self.emitter.raw(f"store <32 x i64> {address}, ptr {address_pointer}")
        if stored_values:
            values_pointer = self.allocate_scratch("<32 x i64>")
            self.emitter.raw(f"store <32 x i64> {stored_values}, ptr {values_pointer}")
        observer_pointer = self.emitter.op(f"inttoptr i64 {self.emitter.context_load('observer')} to ptr")
        self.emitter.raw(
            f"call void {observer_pointer}(ptr %ctx, i32 {site}, ptr {address_pointer}, i32 {mask}, ptr {values_pointer})"
        )

    def trace_value(self, instruction: ir.Instruction) -> None:
        for register_index, name in enumerate(cfg.find_definitions_and_uses(instruction)[0]):
            if name in self.cached_values:
                value = self.emitter.cast(
                    self.cached_values[name], llvm_of(self.function.registers[name]), "i64"
                )
                trace_level = layout.TRACE_ALL & ~layout.TRACE_SHARED
                self.trace_row(
                    value, self.executed_mask(instruction), layout.ROW_REGISTER + register_index, trace_level
                )

    def observe_synchronisation(self, instruction: ir.Instruction) -> None:
        """Emit a call that reports a fence or a ``__syncwarp`` to the observer."""
        if instruction.root in ("membar", "fence"):
            fence_kind = layout.BLOCK_FENCE if "cta" in instruction.parts else layout.FENCE
            self.report_to_observer(fence_kind, "zeroinitializer", self.executed_mask(instruction))
        elif cfg.is_warp_synchronization(instruction):
            member_mask = self.emitter.convert(
                "zext", "i32", self.get(instruction.operands[-1], "b32"), "i64"
            )
            self.report_to_observer(layout.WARP_SYNC, member_mask, self.mask)
