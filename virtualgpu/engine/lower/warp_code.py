"""Parts of a function's code that all emitters use: labels, faults, and stores of registers."""

from __future__ import annotations

from virtualgpu.engine.ir.emit import llvm_of
from virtualgpu.engine.lower.watching import ReportingRegisters


class WarpCode(ReportingRegisters):
    """A builder for the code of one function. The functions that emit instructions use this class.

    The class in `function` adds jumps from block to block.
    """

    def leave_on_fault(self, has_failed: str) -> None:
        next_label = self.emitter.name("ok")
        self.emitter.raw(f"br i1 {has_failed}, label %failed, label %{next_label}")
        self.begin_block(next_label)

    def begin_block(self, label: str) -> None:
        self.emitter.label(label)
        self.current_label = label

    def emit_fault(self, code: int, pc: int, lane_mask: str | None = None, addresses: str = "") -> None:
        """Emit code that reports a fault for the first lane in a mask. This fault ends the warp function.

        The report contains the lane's address, if there is one.
        """
        lane = self.emitter.op(f"call i32 @llvm.cttz.i32(i32 {lane_mask or self.mask}, i1 false)")
        address = self.emitter.op(f"extractelement <32 x i64> {addresses}, i32 {lane}") if addresses else "0"
        arguments = f"i32 {code}, i32 {self.index}, i32 {pc}, i32 {lane}, i32 0, i64 {address}"
        self.emitter.raw(f"call void @fault(ptr %ctx, {arguments})")
        self.emitter.raw("br label %failed")

    def emit_fault_if(self, lane_mask: str, code: int, pc: int, addresses: str = "") -> None:
        """Emit code that reports a fault if a mask contains any lane. The method `emit_fault` emits the code for
        the report.
        """
        fault_label = self.emitter.name("bad")
        next_label = self.emitter.name("ok")
        any_lane = self.emitter.op(f"icmp ne i32 {lane_mask}, 0")
        self.emitter.raw(f"br i1 {any_lane}, label %{fault_label}, label %{next_label}")
        self.begin_block(fault_label)
        self.emit_fault(code, pc, lane_mask, addresses)
        self.begin_block(next_label)

    def store_changed_registers(self) -> None:
        """Emit stores of the changed registers that later blocks read. Only the values of active lanes are
        stored.
        """
        live_registers = self.plan.live_out[self.block.number]
        for name in sorted(self.changed_registers & live_registers):
            llvm_type = llvm_of(self.function.registers[name])
            value = self.cached_values[name]
            pointer = self.emit_slot_pointer(name)
            if llvm_type == "i1":
                old_word = self.emitter.op(f"load i32, ptr {pointer}")
                other_bits = self.emitter.op(
                    f"and i32 {old_word}, {self.emitter.op(f'xor i32 {self.mask}, -1')}"
                )
                new_bits = self.emitter.op(f"and i32 {self.emitter.mask_bits(value)}, {self.mask}")
                self.emitter.raw(
                    f"store i32 {self.emitter.op(f'or i32 {other_bits}, {new_bits}')}, ptr {pointer}"
                )
                continue
            self.emitter.store_lanes(llvm_type, value, pointer, self.active_lanes)
        self.changed_registers.clear()

    def store_pcs(self, lanes: str, target: str) -> None:
        """Emit a store of program counters for the lanes in an i1 vector."""
        self.emitter.store_lanes("i32", target, "%frame", lanes)
