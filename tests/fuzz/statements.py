"""Random statements: control flow any thread may take alone, and what a warp or block does together."""

from __future__ import annotations

from collections.abc import Callable

from tests.fuzz.expressions import COMMON, Expressions, Scope
from tests.fuzz.rng import Rng
from tests.fuzz.tables import FLOATS, INTEGERS

_SHUFFLED = ("i32", "u32", "i64", "u64", "f32", "f64")
_SHARED = ("u8", "i16", "u32", "i32", "u64", "f32", "f64", "float4", "int2", "Mixed")
_MOST_THREADS = 128
_SIZES = {"u8": 1, "i16": 2, "u32": 4, "i32": 4, "u64": 8, "f32": 4, "f64": 8}


class Statements:
    """Writes the body of one function. ``tag`` keeps the names of its global variables apart."""

    def __init__(self, rng: Rng, expressions: Expressions, scope: Scope, tag: str, threads: int = 0) -> None:
        self.rng = rng
        self.x = expressions
        self.scope = scope
        self.tag = tag
        self.threads = threads  # of a block; 0 in a device function
        self.count = 0
        self.tables: list[str] = []
        self.shared: list[str] = []
        self.dynamic_type = ""

    def name(self, stem: str) -> str:
        self.count += 1
        return f"{stem}{self.count}"

    def globals_text(self) -> str:
        return "".join(self.tables)

    def shared_text(self) -> str:
        return "".join(f"    {line}\n" for line in self.shared)

    def dynamic_bytes(self, block: tuple[int, ...]) -> int:
        threads = block[0] * block[1] * block[2]
        return threads * _SIZES[self.dynamic_type] if self.dynamic_type else 0

    def e(self, kind: str, depth: int = 2, scope: Scope | None = None) -> str:
        return self.x.expression(kind, scope or self.scope, depth)

    def uniform(self, limit: int) -> str:
        """A number from 1 to `limit` that is the same for all threads of a block."""
        return f"(1u + ((u32)n * {self.rng.between(1, 9)}u + bid * {self.rng.below(5)}u) % {limit}u)"

    def fresh(self, kind: str, text: str, scope: Scope) -> str:
        """Declare a variable and make it known."""
        name = self.name("t")
        scope.add(name, kind)
        return f"{kind} {name} = {text};"

    # -- what a thread may do alone ------------------------------------------------------------------

    def divergent(self, scope: Scope, depth: int) -> list[str]:
        """Statements for a scope whose threads may be anywhere."""
        simple: list[tuple[int, Callable[[Scope, int], list[str]]]] = [
            (6, self.assign),
            (2, self.declare),
            (2, self.local_array),
            (1, self.structure),
            (1, self.vector),
            (1, self.constant_table),
        ]
        nested: list[tuple[int, Callable[[Scope, int], list[str]]]] = [
            (5, self.branch),
            (2, self.switch),
            (4, self.counted_loop),
            (2, self.open_loop),
            (1, self.jumps),
        ]
        if self.threads:
            simple.append((2, self.own_atomic))
            simple.append((2, self.total_atomic))
        out: list[str] = []
        for _ in range(self.rng.between(1, 2)):
            choices = simple + nested if depth > 0 else simple
            out += self.rng.weighted(choices)(scope, depth)
        return out

    def block(self, scope: Scope, depth: int) -> list[str]:
        """The inside of braces: names declared here end here."""
        inner = scope.inner()
        lines = [*self.divergent(inner, depth - 1), *self.fold(scope, inner)]
        return [f"    {line}" for line in lines]

    def fold(self, outer: Scope, inner: Scope) -> list[str]:
        """Let what was declared inside matter outside, or the compiler would drop it."""
        out = []
        for name, kind in inner.assignable[len(outer.assignable) :]:
            target, target_kind = self.rng.choice(outer.assignable)
            text = f"({self.x.converted(target_kind, kind, name)})" if kind != target_kind else name
            if target_kind in FLOATS:
                out.append(f"{target} = z_tame({target} - {text});")
            elif target_kind == "bool":
                out.append(f"{target} = {target} != {text};")
            else:
                wide = "u64" if target_kind in ("i64", "u64") else "u32"
                out.append(f"{target} = ({target_kind})(({wide}){target} * 3u + ({wide}){text});")
        return out

    def assign(self, scope: Scope, depth: int) -> list[str]:
        name, kind = self.rng.choice(scope.assignable)
        text = self.e(kind, self.rng.between(2, 3), scope)
        if kind in FLOATS and self.rng.chance(40):
            text = f"z_tame({text})"
        if kind in INTEGERS and self.rng.chance(30):
            wide = "u64" if kind in ("i64", "u64") else "u32"
            return [f"{name} = ({kind})(({wide}){name} {self.rng.choice('+-*^|&')} ({wide}){text});"]
        return [f"{name} = {text};"]

    def declare(self, scope: Scope, depth: int) -> list[str]:
        kind = self.rng.weighted(COMMON)
        return [self.fresh(kind, self.e(kind, 2, scope), scope)]

    def local_array(self, scope: Scope, depth: int) -> list[str]:
        """An array indexed by values, so that it lives in local memory."""
        rng = self.rng
        name = self.name("arr")
        size = self.rng.choice((4, 8, 16))
        kind = rng.choice(("u8", "i16", "u32", "i32", "u64", "f32", "f64"))
        first = self.e(kind, 1, scope)
        value = f"({kind})({first} + ({kind})(i * {rng.between(1, 9)}u))"
        out = [f"{kind} {name}[{size}];", f"for (u32 i = 0; i < {size}u; ++i) {name}[i] = {value};"]
        scope.arrays.append((name, kind, size))
        for _ in range(rng.between(1, 2)):
            out.append(f"{name}[{self.x.index(scope, size)}] = {self.e(kind, 2, scope)};")
        if kind == "u32" and rng.chance(60):
            out.append(self.fresh("u32", f"z_stir({name}, {size}u, {self.e('u32', 1, scope)})", scope))
        out.append(self.fresh(kind, f"{name}[{self.x.index(scope, size)}]", scope))
        return out

    def structure(self, scope: Scope, depth: int) -> list[str]:
        name = self.name("s")
        fields = (("i32", "a"), ("f32", "b"), ("u64", "c"), ("i16", "d"), ("f64", "f"))
        out = [f"Mixed {name};"]
        out += [f"{name}.{field} = {self.e(kind, 1, scope)};" for kind, field in fields]
        out += [f"for (u32 i = 0; i < 3u; ++i) {name}.e[i] = (u8)({self.e('u32', 1, scope)} + i);"]
        other = self.name("s")
        fixed = "Mixed{1, 2.5f, 3ull, 4, {5, 6, 7}, 8.5}"
        out.append(f"Mixed {other} = {self.e('bool', 1, scope)} ? {name} : {fixed};")
        if self.rng.chance(60):
            out.append(f"{other} = z_twist({other}, {self.e('u32', 1, scope)});")
        kind, field = self.rng.choice(fields)
        out.append(self.fresh("u8", f"{other}.e[{self.e('u32', 1, scope)} % 3u]", scope))
        out.append(self.fresh(kind, f"{other}.{field}", scope))
        return out

    def vector(self, scope: Scope, depth: int) -> list[str]:
        rng = self.rng
        name = self.name("q")
        kind, element, parts = rng.choice(
            (
                ("int2", "i32", "xy"),
                ("int4", "i32", "xyzw"),
                ("float4", "f32", "xyzw"),
                ("double2", "f64", "xy"),
                ("uchar4", "u8", "xyzw"),
                ("ulonglong2", "u64", "xy"),
            )
        )
        out = [f"{kind} {name} = make_{kind}({', '.join(self.e(element, 1, scope) for _ in parts)});"]
        if kind == "float4" and self.x.inputs:
            out = [f"{kind} {name} = fin[{self.x.index(scope, 256)}];"]
        out.append(f"{name}.{rng.choice(parts)} = {self.e(element, 2, scope)};")
        for _ in range(2):
            out.append(self.fresh(element, f"{name}.{rng.choice(parts)}", scope))
        return out

    def constant_table(self, scope: Scope, depth: int) -> list[str]:
        rng = self.rng
        name = f"table_{self.tag}_{len(self.tables)}"
        kind, size = rng.choice((("u32", 16), ("i16", 32), ("u64", 8), ("u8", 64)))
        values = ", ".join(str(rng.below(127)) for _ in range(size))
        where = rng.choice(("__constant__", "__device__ const"))
        self.tables.append(f"{where} {kind} {name}[{size}] = {{{values}}};\n")
        return [self.fresh(kind, f"{name}[{self.x.index(scope, size)}]", scope)]

    def branch(self, scope: Scope, depth: int) -> list[str]:
        out = [f"if ({self.e('bool', 2, scope)}) {{", *self.block(scope, depth)]
        if self.rng.chance(40):
            out += [f"}} else if ({self.e('bool', 1, scope)}) {{", *self.block(scope, depth)]
        if self.rng.chance(60):
            out += ["} else {", *self.block(scope, depth)]
        return [*out, "}"]

    def switch(self, scope: Scope, depth: int) -> list[str]:
        rng = self.rng
        ways = self.rng.between(3, 6)
        out = [f"switch ({self.e('u32', 1, scope)} % {ways + 1}u) {{"]
        for case in range(ways):
            out += [f"case {case}: {{", *self.block(scope, depth), "}"]
            if rng.chance(75):
                out.append("    break;")
        if rng.chance(60):
            out += ["default: {", *self.block(scope, depth), "}"]
        return [*out, "}"]

    def leaving(self, scope: Scope) -> list[str]:
        """Sometimes a way out of the middle of a loop."""
        if not self.rng.chance(45):
            return []
        return [f"    if ({self.e('bool', 1, scope)}) {self.rng.choice(('break', 'continue'))};"]

    def counted_loop(self, scope: Scope, depth: int) -> list[str]:
        counter = self.name("loop")
        inner = scope.inner()
        inner.add(counter, "u32", assignable=False)
        limit = f"({self.e('u32', 1, scope)} & {self.rng.choice((3, 7))}u)"
        head = f"for (u32 {counter} = 0, z{counter} = {limit}; {counter} < z{counter}; ++{counter}) {{"
        body = self.block(inner, depth)
        middle = self.leaving(inner)
        return [head, *body, *middle, *(self.block(inner, 0) if middle else []), "}"]

    def open_loop(self, scope: Scope, depth: int) -> list[str]:
        counter = self.name("count")
        start = f"u32 {counter} = {self.e('u32', 1, scope)} & 7u;"
        inner = scope.inner()
        inner.add(counter, "u32", assignable=False)
        body = self.block(inner, depth)
        if self.rng.chance(50):
            test = self.e("bool", 1, inner)
            return [start, f"while ({counter} > 0u && {test}) {{", f"    --{counter};", *body, "}"]
        return [start, "do {", *body, *self.leaving(inner), f"}} while ({counter}-- > 1u && {counter} < 8u);"]

    def jumps(self, scope: Scope, depth: int) -> list[str]:
        """A loop with two entries, which no structured statement makes."""
        counter = self.name("count")
        label = self.name("label")
        start = f"u32 {counter} = {self.e('u32', 1, scope)} & 3u;"
        test = self.e("bool", 2, scope)
        scope.add(counter, "u32", assignable=False)
        return [
            start,
            f"if ({test}) goto {label}_in;",
            f"{label}_top: {{",
            *self.block(scope, depth),
            "}",
            f"{label}_in: {{",
            *self.block(scope, depth),
            "}",
            f"if ({counter}-- > 0u && {counter} < 4u) goto {label}_top;",
        ]

    def own_atomic(self, scope: Scope, depth: int) -> list[str]:
        """An atomic on this thread's own word, whose old value is used."""
        if self.rng.chance(15):
            return [
                f"atomicExch((f32*)&slots[gid], z_tame({self.e('f32', 1, scope)}));",
                self.fresh("f32", f"atomicAdd((f32*)&slots[gid], z_tame({self.e('f32', 1, scope)}))", scope),
            ]
        if self.rng.chance(25):
            how = self.rng.choice(("Add", "Max", "Min", "Xor", "And", "Or", "Exch"))
            return [self.fresh("u64", f"atomic{how}(&out[gid], {self.e('u64', 1, scope)})", scope)]
        if self.rng.chance(10):
            text = f"atomicCAS((u16*)&slots[gid] + 1, {self.e('u16', 1, scope)}, {self.e('u16', 1, scope)})"
            return [self.fresh("u16", text, scope)]
        kind = self.rng.choice(("Add", "Sub", "Exch", "Min", "Max", "And", "Or", "Xor", "Inc", "Dec"))
        text = f"atomic{kind}(&slots[gid], {self.e('u32', 1, scope)})"
        if self.rng.chance(20):
            text = f"atomicCAS(&slots[gid], {self.e('u32', 1, scope)}, {self.e('u32', 1, scope)})"
        return [self.fresh("u32", text, scope)]

    def total_atomic(self, scope: Scope, depth: int) -> list[str]:
        """An atomic that threads share, in an operation whose end value does not depend on the order."""
        rng = self.rng
        kind, first = rng.choice((("Add", 0), ("Max", 8), ("Min", 16), ("Or", 24), ("Xor", 32), ("And", 40)))
        place = f"{first}u + ({self.e('u32', 1, scope)} & 7u)"
        if rng.chance(30) and kind != "Min":
            return [f"atomic{kind}(&wide_totals[{place}], {self.e('u64', 2, scope)});"]
        if rng.chance(20):
            return [f"atomicInc(&totals[48u + ({self.e('u32', 1, scope)} & 7u)], 1000003u);"]
        if kind == "Max":
            return [f"atomicMax((i32*)&totals[{place}], {self.e('i32', 2, scope)});"]
        return [f"atomic{kind}(&totals[{place}], {self.e('u32', 2, scope)});"]

    # -- what a warp or a block does together --------------------------------------------------------

    def top(self, last: bool) -> list[str]:
        """A statement of the kernel's outermost level, where the whole block is together."""
        rng = self.rng
        together: list[tuple[int, Callable[[], list[str]]]] = [
            (9, lambda: self.divergent(self.scope, 2)),
            (3, self.exchange),
            (2, self.histogram),
            (2, self.tree),
            (3, self.shuffle),
            (2, self.vote),
            (2, self.match),
            (2, self.some_lanes),
            (2, self.uniform_loop),
            (1, self.barrier_vote),
            (1, self.warp_exchange),
            (1, self.drain),
            (1, self.lock),
        ]
        if self.threads >= 32:
            together.append((1, self.named_barrier))
        out = rng.weighted(together)()
        if last and rng.chance(25):
            out += [
                f"if ({self.e('bool', 2)}) {{",
                f"    out[{0}u * total + gid] = z_mix(h, 99u); return;",
                "}",
            ]
        return out

    def exchange(self) -> list[str]:
        """Through shared memory to another thread of the block."""
        rng = self.rng
        name = self.name("sh")
        kind = rng.choice(_SHARED)
        if not self.dynamic_type:
            name = f"{name}_{self.tag}"  # dynamic shared memory has a name in the whole program
        if kind in _SIZES and not self.dynamic_type and rng.chance(25):
            self.dynamic_type = kind
            self.shared.append(f"extern __shared__ {kind} {name}[];")
        else:
            self.shared.append(f"__shared__ {kind} {name}[{_MOST_THREADS}];")
        other = f"(tid * {rng.choice((1, 3, 5))}u + {rng.below(40)}u) % nt"
        out = ["__syncthreads();"]
        if kind == "float4":
            if rng.chance(50):
                out.append(f"z_copy16(&{name}[tid], &fin[{self.x.index(self.scope, 256)}]);")
            else:
                out.append(f"{name}[tid] = make_float4({', '.join(self.e('f32', 1) for _ in range(4))});")
            fetch = ("f32", f"{name}[{other}].{rng.choice('xyzw')}")
        elif kind == "int2":
            out.append(f"{name}[tid] = make_int2({self.e('i32', 1)}, {self.e('i32', 1)});")
            fetch = ("i32", f"{name}[{other}].{rng.choice('xy')}")
        elif kind == "Mixed":
            out += [
                f"{name}[tid].b = {self.e('f32', 1)};",
                f"{name}[tid].c = {self.e('u64', 1)};",
                f"{name}[tid].e[1] = {self.e('u8', 1)};",
            ]
            fetch = rng.choice(
                (
                    ("f32", f"{name}[{other}].b"),
                    ("u64", f"{name}[{other}].c"),
                    ("u8", f"{name}[{other}].e[1]"),
                )
            )
        else:
            out.append(f"{name}[tid] = {self.e(kind, 2)};")
            fetch = (kind, f"{name}[{other}]")
        return [*out, "__syncthreads();", self.fresh(*fetch, self.scope)]

    def histogram(self) -> list[str]:
        """Shared atomics, then everybody reads."""
        rng = self.rng
        name = self.name("bins")
        kind = rng.choice(("u32", "u32", "i32", "u64"))
        operation, start = rng.choice((("Add", "0"), ("Max", "0"), ("Xor", "5"), ("Or", "0"), ("Min", "100")))
        self.shared.append(f"__shared__ {kind} {name}[16];")
        key = f"{name}[{self.e('u32', 2)} & 15u]"
        return [
            "__syncthreads();",
            f"for (u32 b = tid; b < 16u; b += nt) {name}[b] = ({kind}){start};",
            "__syncthreads();",
            f"if ({self.e('bool', 1)}) atomic{operation}(&{key}, {self.e(kind, 2)});",
            f"atomic{operation}(&{name}[tid & 15u], {self.e(kind, 1)});",
            "__syncthreads();",
            *(
                [f"if (tid == nt - 1u) z_stir({name}, 16u, {self.e('u32', 1)});", "__syncthreads();"]
                if kind == "u32" and rng.chance(50)
                else []
            ),
            self.fresh(kind, f"{name}[({self.e('u32', 1)} + tid) & 15u]", self.scope),
        ]

    def tree(self) -> list[str]:
        rng = self.rng
        name = self.name("tree")
        kind = rng.choice(("u32", "i64", "f32", "f64", "i32"))
        self.shared.append(f"__shared__ {kind} {name}[{_MOST_THREADS}];")
        wide = {"i64": "u64", "i32": "u32"}.get(kind, kind)
        operation = rng.choice("+-*" if kind in FLOATS else "+-*^")
        step = f"({kind})(({wide}){name}[tid] {operation} ({wide}){name}[tid + s])"
        if kind in FLOATS:
            step = f"z_tame({step})"
        return [
            "__syncthreads();",
            f"{name}[tid] = {self.e(kind, 2)};",
            "__syncthreads();",
            f"for (u32 s = {_MOST_THREADS // 2}u; s > 0u; s >>= 1) {{",
            f"    if (tid < s && tid + s < nt) {name}[tid] = {step};",
            "    __syncthreads();",
            "}",
            self.fresh(kind, f"{name}[0]", self.scope),
        ]

    def one_shuffle(self, mask: str) -> tuple[str, str]:
        rng = self.rng
        kind = rng.choice(_SHUFFLED)
        how = rng.choice(("shfl", "up", "down", "xor"))
        amount = str(rng.between(1, 31)) + "u"
        if how == "shfl":
            amount = f"{self.e('u32', 1)} & 31u"
        width = rng.choice((32, 32, 16, 8, 4))
        if how != "shfl":
            amount = f"{rng.between(1, width - 1)}u"
        return kind, f"z_{how}({mask}, {self.e(kind, 2)}, {amount}, {width}u)"

    def shuffle(self) -> list[str]:
        return [self.fresh(*self.one_shuffle("wm"), self.scope) for _ in range(2)]

    def vote(self) -> list[str]:
        test = self.e("bool", 2)
        text = self.rng.choice(
            (
                f"__ballot_sync(wm, {test})",
                f"(u32)__any_sync(wm, {test})",
                f"(u32)__all_sync(wm, {test})",
                f"(u32)z_uniform(wm, {test})",
            )
        )
        return [self.fresh("u32", text, self.scope)]

    def reduction(self, mask: str) -> tuple[str, str]:
        name, kind = self.rng.choice(
            (
                ("sum", "u32"),
                ("most", "u32"),
                ("least", "i32"),
                ("odd", "u32"),
                ("every", "u32"),
                ("some", "u32"),
            )
        )
        return kind, f"z_{name}({mask}, {self.e(kind, 2)})"

    def match(self) -> list[str]:
        rng = self.rng
        groups = self.name("g")
        kind = rng.choice(("u32", "u64"))
        if rng.chance(25):
            same = self.name("same")
            return [
                f"int {same};",
                self.fresh("u32", f"__match_all_sync(wm, {self.e(kind, 1)} >> 28, &{same})", self.scope),
                self.fresh("bool", f"{same} != 0", self.scope),
            ]
        out = [f"const u32 {groups} = __match_any_sync(wm, {self.e(kind, 1)} & 3u);"]
        self.scope.add(groups, "u32", assignable=False)
        out.append(
            self.fresh("u32", f"__shfl_sync({groups}, {self.e('u32', 2)}, __ffs({groups}) - 1)", self.scope)
        )
        return out

    def some_lanes(self) -> list[str]:
        """Lanes for which a condition holds talk among themselves."""
        mask = self.name("m")
        took = self.name("c")
        result = self.name("t")
        kind, text = self.one_shuffle(mask) if self.rng.chance(60) else self.reduction(mask)
        out = [
            f"const bool {took} = {self.e('bool', 2)};",
            f"const u32 {mask} = __ballot_sync(wm, {took});",
            f"{kind} {result} = ({kind})3;",
            f"if ({took}) {{",
            f"    const u32 z{mask} = __shfl_sync({mask}, lane, z_nth({mask}, {self.e('u32', 1)}));",
            f"    {result} = {text};",
            f"    {result} = ({kind})({result} + ({kind})z{mask});"
            if kind not in ("i32", "i64")
            else f"    {result} = ({kind})((u64){result} ^ z{mask});",
            "}",
        ]
        self.scope.add(result, kind)
        return out

    def uniform_loop(self) -> list[str]:
        """A loop that the whole block takes together, with a barrier or a warp-wide step inside."""
        rng = self.rng
        counter = self.name("turn")
        name = self.name("ring")
        self.shared.append(f"__shared__ u32 {name}[{_MOST_THREADS}];")
        carried = self.name("t")
        first = self.e("u32", 2)
        self.scope.add(carried, "u32")
        inner = self.scope.inner()
        inner.add(counter, "u32", assignable=False)
        step = rng.choice(
            (
                f"z_xor(wm, {carried}, 1u << ({counter} & 3u), 32u)",
                f"z_up(wm, {carried}, 1u, 8u)",
                f"z_sum(wm, {carried} & 0xffffu)",
            )
        )
        return [
            f"u32 {carried} = {first};",
            f"for (u32 {counter} = 0; {counter} < {self.uniform(4)}; ++{counter}) {{",
            "    __syncthreads();",
            f"    {name}[tid] = {carried} + {counter};",
            *self.block(inner, rng.below(2)),
            "    __syncthreads();",
            f"    {carried} ^= {name}[(tid + {rng.between(1, 33)}u) % nt] * 3u;",
            f"    {carried} += {step};",
            "}",
        ]

    def barrier_vote(self) -> list[str]:
        how = self.rng.choice(("count", "and", "or"))
        text = f"__syncthreads_{how}({self.e('bool', 2)} ? 1 : 0)"
        return [self.fresh("i32", text if how == "count" else f"{text} != 0 ? 7 : 9", self.scope)]

    def named_barrier(self) -> list[str]:
        """Some of the block's warps meet at a barrier of their own."""
        name = self.name("part")
        result = self.name("t")
        self.shared.append(f"__shared__ u32 {name}[{_MOST_THREADS}];")
        count = 32 * self.rng.between(1, self.threads // 32)
        barrier = f'asm volatile("bar.sync {self.rng.between(1, 15)}, {count};" ::: "memory");'
        out = [
            f"u32 {result} = {self.e('u32', 1)};",
            f"if (tid < {count}u) {{",
            f"    {barrier}",
            f"    {name}[tid] = {self.e('u32', 2)};",
            f"    {barrier}",
            f"    {result} ^= {name}[(tid * 5u + {self.rng.below(40)}u) % {count}u];",
            "}",
        ]
        self.scope.add(result, "u32")
        return out

    def warp_exchange(self) -> list[str]:
        """Shared memory within a warp, ordered by __syncwarp alone."""
        name = self.name("wsh")
        self.shared.append(f"__shared__ u32 {name}[{_MOST_THREADS}];")
        count = self.name("nw")
        return [
            f"const u32 {count} = __popc(wm);",
            "__syncwarp(wm);",
            f"{name}[tid] = {self.e('u32', 2)};",
            "__syncwarp(wm);",
            self.fresh("u32", f"{name}[(tid & ~31u) + ({self.e('u32', 1)} % {count})]", self.scope),
            "__syncwarp(wm);",
        ]

    def drain(self) -> list[str]:
        """Lanes take turns: a loop that runs while any lane of the warp still wants to."""
        remainder = self.name("left")
        total = self.name("t")
        turns = self.e("u32", 1)
        first = self.e("u32", 2)
        self.scope.add(total, "u32")
        return [
            f"u32 {remainder} = {turns} & 3u, {total} = {first};",
            f"while (__any_sync(wm, {remainder} > 0u)) {{",
            f"    if ({remainder} > 0u) {{ {total} = {total} * 5u + {remainder}; --{remainder}; }}",
            f"    {total} += __popc(__ballot_sync(wm, ({total} & 1u) != 0u));",
            "}",
        ]

    def lock(self) -> list[str]:
        """A spin lock that lanes of one warp fight for; what it guards commutes."""
        lock = self.name("lock")
        guarded = self.name("sum")
        done = self.name("done")
        self.shared += [f"__shared__ u32 {lock};", f"__shared__ volatile u32 {guarded};"]
        return [
            "__syncthreads();",
            f"if (tid == 0u) {{ {lock} = 0u; {guarded} = 1u; }}",
            "__syncthreads();",
            f"for (bool {done} = false; !{done};) {{",
            f"    if (atomicCAS(&{lock}, 0u, 1u) == 0u) {{",
            "        __threadfence_block();",
            f"        {guarded} = {guarded} + ({self.e('u32', 1)} | 1u);",
            "        __threadfence_block();",
            f"        atomicExch(&{lock}, 0u);",
            f"        {done} = true;",
            "    }",
            "}",
            "__syncthreads();",
            self.fresh("u32", guarded, self.scope),
        ]
