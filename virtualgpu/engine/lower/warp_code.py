"""The code of one function as its instructions write it: labels, faults, registers that are kept."""

from __future__ import annotations

from virtualgpu.engine.ir.emit import llvm_of
from virtualgpu.engine.lower.watching import Watching


class WarpCode(Watching):
    """What emitters of instructions may use; `function` adds the flow from block to block."""

    def leave_on_fault(self, failed: str) -> None:
        onward = self.e.name("ok")
        self.e.raw(f"br i1 {failed}, label %failed, label %{onward}")
        self.begin(onward)

    def begin(self, label: str) -> None:
        self.e.label(label)
        self.here = label

    def fault(self, code: int, pc: int, lane_mask: str | None = None, addresses: str = "") -> None:
        """End the warp function with a fault of the first lane of a mask, and its address of `addresses`."""
        lane = self.e.op(f"call i32 @llvm.cttz.i32(i32 {lane_mask or self.mask}, i1 false)")
        address = self.e.op(f"extractelement <32 x i64> {addresses}, i32 {lane}") if addresses else "0"
        at = f"i32 {code}, i32 {self.index}, i32 {pc}, i32 {lane}, i32 0, i64 {address}"
        self.e.raw(f"call void @fault(ptr %ctx, {at})")
        self.e.raw("br label %failed")

    def fault_if(self, lanes: str, code: int, pc: int, addresses: str = "") -> None:
        """Fault if any lane of a mask is set; see `fault`."""
        hit = self.e.name("bad")
        onward = self.e.name("ok")
        some = self.e.op(f"icmp ne i32 {lanes}, 0")
        self.e.raw(f"br i1 {some}, label %{hit}, label %{onward}")
        self.begin(hit)
        self.fault(code, pc, lanes, addresses)
        self.begin(onward)

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
            self.e.store_lanes(llvm, value, pointer, self.mask_v)
        self.dirty.clear()

    def store_pcs(self, lanes: str, target: str) -> None:
        """Write a program-counter vector to the lanes of an i1 vector."""
        self.e.store_lanes("i32", target, "%frame", lanes)
