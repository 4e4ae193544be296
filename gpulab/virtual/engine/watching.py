"""What generated code tells while it runs: steps and values to a trace, accesses to an observer."""

from __future__ import annotations

from gpulab.ptx import cfg, ir
from gpulab.virtual.engine import layout
from gpulab.virtual.engine.emit import llvm_of
from gpulab.virtual.engine.registers import Registers


class Watching(Registers):
    """Adds calls that record a trace or tell an observer."""

    def trace_step(self, i: ir.Instruction) -> None:
        executed = self.executed(i)
        self.e.raw(
            f"call void @trace_step(ptr %ctx, i32 {self.index}, i32 {i.pc}, i32 {self.mask}, i32 {executed})"
        )

    def trace_address(self, address: str, mask: str) -> None:
        if self.options.trace:
            where = layout.TRACE_STEP.fields["address"][1]  # type: ignore[index]
            self.e.raw(f"call void @trace_lanes(ptr %ctx, <32 x i64> {address}, i32 {mask}, i64 {where})")

    def observe(self, site: int, address: str, mask: str, stored: str = "") -> None:
        """Tell the observer of an access, before it happens, and of what it is to store."""
        lanes, values = self.scratch("<32 x i64>"), "null"
        self.e.raw(f"store <32 x i64> {address}, ptr {lanes}")
        if stored:
            values = self.scratch("<32 x i64>")
            self.e.raw(f"store <32 x i64> {stored}, ptr {values}")
        function = self.e.op(f"inttoptr i64 {self.e.context_load('observer')} to ptr")
        self.e.raw(f"call void {function}(ptr %ctx, i32 {site}, ptr {lanes}, i32 {mask}, ptr {values})")

    def trace_value(self, i: ir.Instruction) -> None:
        defined, _ = cfg.definitions_and_uses(i)
        if defined and defined[0] in self.cache:
            llvm = llvm_of(self.function.registers[defined[0]])
            value = self.e.cast(self.cache[defined[0]], llvm, "i64")
            where = layout.TRACE_STEP.fields["value"][1]  # type: ignore[index]
            self.e.raw(
                f"call void @trace_lanes(ptr %ctx, <32 x i64> {value}, i32 {self.executed(i)}, i64 {where})"
            )

    def observe_synchronisation(self, i: ir.Instruction) -> None:
        """Tell the observer of a fence or a ``__syncwarp``, if the instruction is one."""
        if i.root in ("membar", "fence"):
            self.observe(layout.FENCE, "zeroinitializer", self.executed(i))
        elif cfg.is_warp_meeting(i):
            members = self.e.convert("zext", "i32", self.get(i.operands[-1], "b32"), "i64")
            self.observe(layout.WARP_SYNC, members, self.mask)
