"""A long warp function with its vectors in memory: every wide operation is a call of a shared function.

LLVM needs a good part of a millisecond for each operation over 32 lanes that it writes out, and a long
kernel has ten thousand of them. Here each kind of operation becomes one function, which takes and gives
rows of lanes by address and is translated once; what is left of the kernel's own function are calls and
scalars. Masks (``<32 x i1>``) become 32-bit integers. Functions and constants are found by pointers on the
stack: LLVM's quick selection of instructions knows no names that may be far away, and its other takes twice as long.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

# A kind of value, such as <32 x float>; a value is a name or a constant.
_KIND = r"<\d+ x \w+>|ptr|i\d+|half|float|double"
_VALUE = r"%[\w.]+|splat \([^)]*\)|<[^<>]*>|[\w.+-]+"
_RESULT = r"(?:(?P<to>%[\w.]+) = )?"
_FORMS = {
    "load": rf"load(?P<how>(?: volatile)?) (?P<kind>{_KIND}), ptr (?P<a>{_VALUE})(?P<rest>.*)",
    "store": rf"store(?P<how>(?: volatile)?) (?P<kind>{_KIND}) (?P<a>{_VALUE}), ptr (?P<b>{_VALUE})(?P<rest>.*)",
    "cast": rf"(?P<op>\w+) (?P<kind>{_KIND}) (?P<a>{_VALUE}) to (?P<made>{_KIND})",
    "compare": rf"(?P<op>[if]cmp \w+) (?P<kind>{_KIND}) (?P<a>{_VALUE}), (?P<b>{_VALUE})",
    "select": rf"select (?P<kind>{_KIND}) (?P<a>{_VALUE}), (?P<made>{_KIND}) (?P<b>{_VALUE}), "
    rf"(?:{_KIND}) (?P<c>{_VALUE})",
    "insert": rf"insertelement (?P<kind>{_KIND}) (?P<a>{_VALUE}), (?P<made>\w+) (?P<b>{_VALUE}), "
    rf"i32 (?P<c>{_VALUE})",
    "extract": rf"extractelement (?P<kind>{_KIND}) (?P<a>{_VALUE}), i32 (?P<b>{_VALUE})",
    "shuffle": rf"shufflevector (?P<kind>{_KIND}) (?P<a>{_VALUE}), (?:{_KIND}) (?P<b>{_VALUE}), "
    rf"(?P<made>{_KIND}) (?P<c>{_VALUE})",
    "phi": rf"phi (?P<kind>{_KIND}) (?P<rest>.*)",
    "unary": rf"(?P<op>fneg|freeze) (?P<kind>{_KIND}) (?P<a>{_VALUE})",
    "call": rf"(?P<op>call(?: contract)?) (?P<kind>void|{_KIND}) (?P<a>@[\w.]+)\((?P<rest>.*)\)",
    "binary": rf"(?P<op>\w+(?: contract)?) (?P<kind>{_KIND}) (?P<a>{_VALUE}), (?P<b>{_VALUE})",
}
_FORM = {name: re.compile(_RESULT + text) for name, text in _FORMS.items()}
# Forms by the word that a line begins with, where that is not the form's name; all others are "binary".
_FORM_OF = {
    "icmp": "compare",
    "fcmp": "compare",
    "fneg": "unary",
    "freeze": "unary",
    "insertelement": "insert",
    "extractelement": "extract",
    "shufflevector": "shuffle",
    "bitcast": "cast",
    "inttoptr": "cast",
    "ptrtoint": "cast",
    "zext": "cast",
    "sext": "cast",
    "trunc": "cast",
    "fpext": "cast",
    "fptrunc": "cast",
    "fptosi": "cast",
    "fptoui": "cast",
    "sitofp": "cast",
    "uitofp": "cast",
}
_ARGUMENT = re.compile(rf"({_KIND})((?: align \d+)?) ({_VALUE})(?:, |$)")
_COMING = re.compile(rf"\[({_VALUE}), %([\w.]+)\]")
_SPLAT = re.compile(r"splat \(\w+ ([^)]*)\)")
_NAME = re.compile(r"%[\w.]+")
_BLOCK = re.compile(r"bb\d+")
_FAR = re.compile(r"@(?!llvm\.)[\w.]+")
_PLAIN = re.compile(r"label %| alloca | getelementptr (?!.*, <)")
_TARGET = re.compile(r"label %([\w.]+)")
_BITS = {"half": 16, "float": 32, "double": 64, "ptr": 64}
# Kinds of which a constant in every lane is passed as one number.
_BY_VALUE = ("i8", "i16", "i32", "i64", "float", "double")
_SAME_BYTES = ("bitcast", "inttoptr", "ptrtoint", "freeze")
MASK = "<32 x i1>"
_LANE_BITS = "<" + ", ".join(f"i32 {1 << lane}" for lane in range(32)) + ">"


class UnreadableError(Exception):
    """A line that is not among those known here: its function is translated as it is."""


def _is_wide(kind: str) -> bool:
    """Whether values of a kind are rows of lanes, in memory here."""
    return kind[0] == "<" and kind != MASK


def _scalar(kind: str) -> str:
    return kind[1:-1].split(" x ")[1]


def _size(kind: str) -> int:
    count, scalar = kind[1:-1].split(" x ")
    bits = _BITS.get(scalar) or int(scalar[1:])
    if bits % 8:
        raise UnreadableError(kind)
    return int(count) * bits // 8


@dataclass(slots=True)
class Rows:
    """The functions that rows of lanes are handed to, and constants among them."""

    names: dict[str, str] = field(default_factory=dict)  # of the functions, by what they do
    texts: list[str] = field(default_factory=list)
    declared: list[str] = field(default_factory=list)
    constants: dict[str, str] = field(default_factory=dict)

    def constant(self, kind: str, value: str) -> str:
        """A row in memory with the value of a constant."""
        return self.constants.setdefault(f"{kind} {value}", f"@row.c{len(self.constants)}")

    def definitions(self) -> list[str]:
        """Text of the constants."""
        return [f"{name} = internal constant {what}, align 64" for what, name in self.constants.items()]

    def function(self, template: str, given: list[tuple[str, str]], made: str) -> str:
        """Name of the function that does `template` with arguments handed over as `given` says.

        Each of these is a kind and how it comes: a row by address, a mask as its bits, one number for
        all lanes, or as it is.
        """
        key = f"{template} {given} {made}"
        if key in self.names:
            return self.names[key]
        name = f"row.{len(self.names)}"
        self.names[key] = name
        lines: list[str] = []
        kinds: list[str] = ["ptr"] if _is_wide(made) else []
        parameters = [f"{kind} %d" for kind in kinds]
        for n, (kind, how) in enumerate(given):
            passed = {"row": "ptr", "mask": "i32", "number": _scalar(kind) if kind[0] == "<" else kind}
            kinds.append(passed.get(how, kind))
            parameters.append(f"{kinds[-1]} %{'x' if how == 'plain' else 'g'}{n}")
            if how == "row":
                lines.append(f"%x{n} = load {kind}, ptr %g{n}, align 64")
            elif how == "number":
                lines += _spread(kind, f"%g{n}", f"%x{n}")
            elif how == "mask":
                lines += _spread("<32 x i32>", f"%g{n}", f"%s{n}")
                lines.append(f"%b{n} = and <32 x i32> %s{n}, {_LANE_BITS}")
                lines.append(f"%x{n} = icmp ne <32 x i32> %b{n}, zeroinitializer")
        act = template.format(*(f"%x{n}" for n in range(len(given))))
        answer = "void"
        if made == "void":
            lines += [act, "ret void"]
        elif _is_wide(made):
            lines += [f"%r = {act}", f"store {made} %r, ptr %d, align 64", "ret void"]
        elif made == MASK:
            answer = "i32"
            lines += [f"%r = {act}", f"%m = bitcast {MASK} %r to i32", "ret i32 %m"]
        else:
            answer = made
            lines += [f"%r = {act}", f"ret {made} %r"]
        body = "\n  ".join(lines)
        self.texts.append(f"define {answer} @{name}({', '.join(parameters)}) noinline {{\n  {body}\n}}")
        self.declared.append(f"declare {answer} @{name}({', '.join(kinds)})")
        return name


def _spread(kind: str, number: str, to: str) -> list[str]:
    return [
        f"{to}.0 = insertelement {kind} poison, {_scalar(kind)} {number}, i32 0",
        f"{to} = shufflevector {kind} {to}.0, {kind} poison, <{kind[1:].split()[0]} x i32> zeroinitializer",
    ]


@dataclass(slots=True)
class _Operand:
    """A value that an operation gets; `how` it is handed over."""

    kind: str
    how: str
    value: str


@dataclass(slots=True)
class _Act:
    """One line: text as it is to be, or an operation on rows."""

    text: str = ""
    to: str = ""
    made: str = "void"
    template: str = ""
    operands: list[_Operand] = field(default_factory=list)
    coming: list[tuple[_Operand, str]] = field(default_factory=list)


class _Function:
    """One warp function on its way."""

    def __init__(self, lines: list[str], rows: Rows) -> None:
        self.rows = rows
        self.lines = lines
        self.kinds: dict[str, str] = {}  # of names whose values are rows
        self.same: dict[str, str] = {}  # names of values that are others' bytes
        self.masks: dict[str, str] = {}  # what a mask's bits are, by its name
        self.numbers: dict[str, str] = {}  # the scalar in every lane
        self.bits_of: dict[str, str] = {}  # lanes' own bits of a mask
        self.acts: list[_Act] = []
        self.pointers: dict[str, str] = {}  # where the address of a function or constant is
        self.found = 0

    # -- reading -------------------------------------------------------------------------------------

    def read(self) -> None:
        """Take every line for what it is."""
        for name, kind in self._phis():
            self.kinds[name] = kind
        for line in self.lines:
            if "<" not in line or _PLAIN.search(line):
                self.acts.append(_Act(line))
                continue
            self._take(line.strip())

    def _take(self, line: str) -> None:
        word = line[line.find(" = ") + 3 if line[0] == "%" else 0 :].split(" ", 1)[0]
        form = _FORM_OF.get(word, word if word in _FORM else "binary")
        found = _FORM[form].fullmatch(line)
        if found is None:
            raise UnreadableError(line)
        reader: Callable[[re.Match[str]], None] = getattr(self, f"_{form}")
        reader(found)

    def _phis(self) -> list[tuple[str, str]]:
        """Rows that meet from several blocks; they are named before they are known."""
        found = (_FORM["phi"].fullmatch(line.strip()) for line in self.lines if " = phi <" in line)
        return [(m["to"], m["kind"]) for m in found if m is not None and _is_wide(m["kind"])]

    def _operand(self, kind: str, value: str) -> _Operand:
        if kind == MASK:
            return _Operand(kind, "mask", self._bits(value))
        if not _is_wide(kind):
            return _Operand(kind, "plain", value)
        value = self.same.get(value, value)
        if value in self.numbers:
            return _Operand(kind, "number", self.numbers[value])
        if value in self.kinds:
            return _Operand(kind, "row", value)
        if value[0] == "%":
            raise UnreadableError(f"{kind} {value}")
        if value == "poison" or value == "undef":
            value = "zeroinitializer"
        if _scalar(kind) in _BY_VALUE:
            spread = _SPLAT.fullmatch(value)
            if spread is not None:
                return _Operand(kind, "number", spread[1])
            if value == "zeroinitializer":
                return _Operand(kind, "number", "0.0" if _scalar(kind) in ("float", "double") else "0")
        return _Operand(kind, "row", self.rows.constant(kind, value))

    def _bits(self, value: str) -> str:
        """A mask as 32 bits."""
        value = self.same.get(value, value)
        if value in self.masks:
            return self.masks[value]
        if value == "zeroinitializer":
            return "0"
        spread = _SPLAT.fullmatch(value)
        if spread is None:
            raise UnreadableError(f"{MASK} {value}")
        return "-1" if spread[1] in ("1", "true", "-1") else "0"

    def _does(self, to: str, made: str, template: str, *operands: _Operand) -> None:
        if to and _is_wide(made):
            self.kinds[to] = made
        elif to and made == MASK:
            self.masks[to] = to
        self.acts.append(_Act("", to, made, template, list(operands)))

    def _scalars(self, to: str, text: str) -> None:
        self.acts.append(_Act(f"  {to} = {text}"))

    def _load(self, m: re.Match[str]) -> None:
        if m["kind"] == MASK:
            self.masks[m["to"]] = m["to"]
            self._scalars(m["to"], f"load i32, ptr {m['a']}, align 4")
            return
        self._does(
            m["to"],
            m["kind"],
            f"load{m['how']} {m['kind']}, ptr {{0}}{m['rest']}",
            _Operand("ptr", "plain", m["a"]),
        )

    def _store(self, m: re.Match[str]) -> None:
        if m["kind"] == MASK:
            self.acts.append(_Act(f"  store i32 {self._bits(m['a'])}, ptr {m['b']}, align 4"))
            return
        pointer = _Operand("ptr", "plain", m["b"])
        value = self._operand(m["kind"], m["a"])
        self._does("", "void", f"store{m['how']} {m['kind']} {{0}}, ptr {{1}}{m['rest']}", value, pointer)

    def _cast(self, m: re.Match[str]) -> None:
        kind = m["kind"]
        made = m["made"]
        to = m["to"]
        if MASK in (kind, made) and m["op"] == "bitcast":
            bits = self._bits(m["a"]) if kind == MASK else m["a"]
            if kind == MASK and made == "i32":
                self._scalars(to, f"add i32 {bits}, 0")
            elif made == MASK and kind == "i32":
                self.masks[to] = bits
            else:
                raise UnreadableError(m[0])
            return
        value = self._operand(kind, m["a"])
        same = m["op"] in _SAME_BYTES and _is_wide(kind) and _is_wide(made)
        if same and value.how == "row" and value.value[0] == "%":
            self.same[to] = value.value
            return
        self._does(to, made, f"{m['op']} {kind} {{0}} to {made}", value)

    def _unary(self, m: re.Match[str]) -> None:
        self._does(m["to"], m["kind"], f"{m['op']} {m['kind']} {{0}}", self._operand(m["kind"], m["a"]))

    def _compare(self, m: re.Match[str]) -> None:
        kind = m["kind"]
        if not _is_wide(kind):
            raise UnreadableError(m[0])
        own = {"icmp eq": _LANE_BITS, "icmp ne": "zeroinitializer"}.get(m["op"])
        if m["a"] in self.bits_of and m["b"] == own:  # the lanes whose bits are set in a mask
            self.masks[m["to"]] = self.bits_of[m["a"]]
            return
        operands = [self._operand(kind, m[x]) for x in "ab"]
        self._does(m["to"], MASK, f"{m['op']} {kind} {{0}}, {{1}}", *operands)

    def _select(self, m: re.Match[str]) -> None:
        made = m["made"]
        to = m["to"]
        if m["kind"] not in (MASK, "i1"):
            raise UnreadableError(m[0])
        if made == MASK:
            yes = self._bits(m["b"])
            no = self._bits(m["c"])
            self.masks[to] = to
            if m["kind"] == "i1":
                self._scalars(to, f"select i1 {m['a']}, i32 {yes}, i32 {no}")
                return
            chosen = self._bits(m["a"])
            self._scalars(f"{to}.y", f"and i32 {chosen}, {yes}")
            self._scalars(f"{to}.o", f"xor i32 {chosen}, -1")
            self._scalars(f"{to}.n", f"and i32 {to}.o, {no}")
            self._scalars(to, f"or i32 {to}.y, {to}.n")
            return
        operands = [self._operand(m["kind"], m["a"]), *(self._operand(made, m[x]) for x in "bc")]
        self._does(to, made, f"select {m['kind']} {{0}}, {made} {{1}}, {made} {{2}}", *operands)

    def _binary(self, m: re.Match[str]) -> None:
        kind = m["kind"]
        to = m["to"]
        if kind == MASK:
            self._scalars(to, f"{m['op']} i32 {self._bits(m['a'])}, {self._bits(m['b'])}")
            self.masks[to] = to
            if m["op"] not in ("and", "or", "xor"):
                raise UnreadableError(m[0])
            return
        if not _is_wide(kind):
            raise UnreadableError(m[0])
        if m["op"] == "and" and m["b"] == _LANE_BITS and m["a"] in self.numbers:
            self.bits_of[to] = self.numbers[m["a"]]
        self._does(to, kind, f"{m['op']} {kind} {{0}}, {{1}}", *(self._operand(kind, m[x]) for x in "ab"))

    def _insert(self, m: re.Match[str]) -> None:
        if m["a"] == "poison" and m["c"] == "0" and m["made"] in _BY_VALUE:
            self.numbers[m["to"]] = m["b"]
            return
        operands = [
            self._operand(m["kind"], m["a"]),
            _Operand(m["made"], "plain", m["b"]),
            _Operand("i32", "plain", m["c"]),
        ]
        self._does(
            m["to"], m["kind"], f"insertelement {m['kind']} {{0}}, {m['made']} {{1}}, i32 {{2}}", *operands
        )

    def _extract(self, m: re.Match[str]) -> None:
        if m["kind"] == MASK:
            self._scalars(f"{m['to']}.s", f"lshr i32 {self._bits(m['a'])}, {m['b']}")
            self._scalars(m["to"], f"trunc i32 {m['to']}.s to i1")
            return
        operands = [self._operand(m["kind"], m["a"]), _Operand("i32", "plain", m["b"])]
        self._does(m["to"], _scalar(m["kind"]), f"extractelement {m['kind']} {{0}}, i32 {{1}}", *operands)

    def _shuffle(self, m: re.Match[str]) -> None:
        made = f"<{m['made'][1:].split()[0]} x {_scalar(m['kind'])}>"
        if m["a"] in self.numbers and m["c"] == "zeroinitializer":
            self.numbers[m["to"]] = self.numbers[m["a"]]
            return
        operands = [self._operand(m["kind"], m[x]) for x in "ab"]
        where = f"{m['made']} {m['c']}"
        self._does(m["to"], made, f"shufflevector {m['kind']} {{0}}, {m['kind']} {{1}}, {where}", *operands)

    def _call(self, m: re.Match[str]) -> None:
        operands: list[_Operand] = []
        pieces: list[str] = []
        end = 0
        for found in _ARGUMENT.finditer(m["rest"]):
            if found.start() != end:
                raise UnreadableError(m[0])
            end = found.end()
            kind, how, value = found.groups()
            if value[0] != "%" and not _is_wide(kind) and kind != MASK and m["a"].startswith("@llvm."):
                pieces.append(f"{kind}{how} {value}")  # it may have to be a constant
                continue
            pieces.append(f"{kind}{how} {{{len(operands)}}}")
            operands.append(self._operand(kind, value))
        if end != len(m["rest"]):
            raise UnreadableError(m[0])
        self._does(
            m["to"] or "", m["kind"], f"{m['op']} {m['kind']} {m['a']}({', '.join(pieces)})", *operands
        )

    def _phi(self, m: re.Match[str]) -> None:
        kind = m["kind"]
        ways = _COMING.findall(m["rest"])
        if kind == MASK or m["to"].startswith("%loop"):  # rows that come round: see `lower.loops`
            raise UnreadableError(m[0])
        act = _Act("", m["to"], kind)
        # What comes round a loop is not known yet: it is looked up when all lines are.
        act.coming = [(_Operand(kind, "row", value), label) for value, label in ways]
        self.acts.append(act)

    # -- writing -------------------------------------------------------------------------------------

    def write(self) -> list[str]:
        """The function's lines with rows in memory."""
        self._settle_phis()
        places, head = self._places(self._last_uses())
        out: list[str] = []
        meeting: list[str] = []
        for act in self.acts:
            if not act.coming:
                out += meeting
                meeting = []
            out += self._written(act, places, meeting)
        for name, place in self.pointers.items():
            head += [f"  {place} = alloca ptr", f"  store ptr {name}, ptr {place}"]
        return [*out[:2], *head, *out[2:]]  # after the function's first label

    def _calls(self, line: str) -> list[str]:
        """A call of functions and with constants that may be far away."""
        lines: list[str] = []

        def there(found: re.Match[str]) -> str:
            place = self.pointers.setdefault(found[0], f"%far.{len(self.pointers)}")
            self.found += 1
            lines.append(f"  %at.{self.found} = load ptr, ptr {place}")
            return f"%at.{self.found}"

        called = _FAR.sub(there, line)
        return [*lines, called]

    def _places(self, last: dict[str, int]) -> tuple[dict[str, str], list[str]]:
        """A place for every row, of which those no longer needed are taken again; and what makes them."""
        places: dict[str, str] = {}
        head: list[str] = []
        free: dict[int, list[str]] = {}
        over: dict[int, list[str]] = {}
        for at, act in enumerate(self.acts):
            if act.to and _is_wide(act.made):
                size = _size(act.made)
                vacant = free.setdefault(size, [])
                if not vacant:
                    vacant.append(f"%row.{len(head)}")
                    head.append(f"  %row.{len(head)} = alloca [{size} x i8], align 64")
                places[act.to] = vacant.pop()
                over.setdefault(last.get(act.to, at), []).append(act.to)
            for name in over.pop(at, ()):
                free[_size(self.kinds[name])].append(places[name])
        return places, head

    def _settle_phis(self) -> None:
        """What comes to where blocks meet, now that all names are known."""
        phis = {act.to for act in self.acts if act.coming}
        for act in self.acts:
            if not act.coming:
                continue
            for value, _ in act.coming:
                value.value = self.same.get(value.value, value.value)
                if value.value[0] != "%":
                    value.value = self.rows.constant(value.kind, value.value)
                elif value.value not in self.kinds or value.value in phis - {act.to}:
                    raise UnreadableError(act.to)

    def _written(self, act: _Act, places: dict[str, str], meeting: list[str]) -> list[str]:
        if act.text:
            return self._calls(act.text) if " call " in act.text else [act.text]
        if act.coming:
            ways = ", ".join(f"[{self._row(value, places)}, %{label}]" for value, label in act.coming)
            copy = self.rows.function(f"load {act.made}, ptr {{0}}, align 64", [("ptr", "plain")], act.made)
            meeting += self._calls(f"  call void @{copy}(ptr {places[act.to]}, ptr {act.to}.p)")
            return [f"  {act.to}.p = phi ptr {ways}"]
        name = self.rows.function(act.template, [(o.kind, o.how) for o in act.operands], act.made)
        given = [f"ptr {places[act.to]}"] if act.to and _is_wide(act.made) else []
        for operand in act.operands:
            kind = {"row": "ptr", "mask": "i32", "plain": operand.kind}.get(operand.how) or _scalar(
                operand.kind
            )
            value = self._row(operand, places) if operand.how == "row" else operand.value
            given.append(f"{kind} {value}")
        answer = "void" if act.made == "void" or _is_wide(act.made) else act.made
        answer = "i32" if answer == MASK else answer
        call = f"call {answer} @{name}({', '.join(given)})"
        return self._calls(f"  {act.to} = {call}" if answer != "void" else f"  {call}")

    def _row(self, operand: _Operand, places: dict[str, str]) -> str:
        return places[operand.value] if operand.value[0] == "%" else operand.value

    def _last_uses(self) -> dict[str, int]:
        """Where each row is used for the last time, all the way round loops; blocks of PTX share no rows."""
        labels: dict[str, int] = {}
        ends: dict[str, int] = {}  # of what begins with a label
        block_of: list[int] = []
        number = 0
        label = ""
        for at, act in enumerate(self.acts):
            if act.text.endswith(":"):
                label = act.text[:-1]
                labels[label] = at
                number += _BLOCK.fullmatch(label) is not None
            block_of.append(number)
            ends[label] = at
        first = {act.to: at for at, act in enumerate(self.acts) if act.to and _is_wide(act.made)}
        last = dict(first)
        for at, act in enumerate(self.acts):
            for operand in act.operands:
                if operand.value in first:
                    last[operand.value] = max(last[operand.value], at)
            for operand, label in act.coming:
                if operand.value in first:
                    last[operand.value] = max(last[operand.value], at, ends[label])
        loops = sorted(
            (at, labels[target])
            for at, act in enumerate(self.acts)
            if act.text and "label %" in act.text
            for target in _TARGET.findall(act.text)
            if labels[target] <= at and block_of[labels[target]] == block_of[at]
        )
        for end, begin in loops:  # inner ones first
            for name, made in first.items():
                meets = begin <= made <= end and self.acts[made].coming
                if (made < begin <= last[name] or meets) and last[name] < end:
                    last[name] = end
        for name, made in first.items():
            if block_of[made] != block_of[last[name]]:
                raise UnreadableError(name)
        return last


def by_address(text: list[str], rows: Rows) -> list[str]:
    """The lines of one warp function with its rows of lanes in memory.

    Raises
    ------
    UnreadableError
        At a line that is not known here.
    """
    function = _Function(text, rows)
    function.read()
    return function.write()
