"""Parts of the repository stay within their budgets of lines."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import budgets
from tools.lines import code_lines


def test_no_part_holds_more_than_it_may() -> None:
    assert not (told := budgets.over()), "\n".join(told)


@pytest.mark.parametrize(
    ("text", "kind", "lines"),
    [
        ('"""What."""\n\nimport os\n\n\ndef f():\n    """Do\n\n    it."""\n    g()  # why\n', ".py", 3),
        ("# a\nx = '''\n\n'''\n", ".py", 3),
        ('class A:\n    """Only documented."""\n', ".py", 1),
        ("x = (\n    # why\n    1,\n\n    2,\n)\n", ".py", 4),
        ("/* a\n b */\nconst url = 'https://x'; // c\n\n// d\nf(`/*\n*/`);\n", ".js", 3),
        (".a { color: red; } /* b */\n/*\n*/\n", ".css", 1),
    ],
)  # fmt: skip
def test_only_code_counts(text: str, kind: str, lines: int) -> None:
    assert code_lines(text, kind) == lines


def _repository(root: Path, limits: str, helper: str = "x = 1\n") -> Path:
    for name, text in {
        "gpulab/lab/a.py": helper,
        "gpulab/views/a.js": "// one\n\nf();\n",
        "gpulab/views/parts/b.js": "f();\n" * 99,
        "gpulab/course/n00/quiz.py": "x = 1\n" * 99,
        "gpulab/course/n00/work.py": "x = 1\n",
        "virtualgpu/engine/ops/add.py": "x = 1\n",
        str(budgets.LIMITS): "part\tlines\twhy\n" + limits,
    }.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


LIMITS = (
    "gpulab without course, teach, views\t1\tfirst\ngpulab/course: machinery\t1\tfirst\n"
    "gpulab/views: JavaScript outside parts (all lines)\t3\tfirst\nvirtualgpu/engine\t1\tfirst\n"
)


def test_a_line_too_many_is_told(tmp_path: Path) -> None:
    assert budgets.over(_repository(tmp_path, LIMITS)) == []
    told = budgets.over(_repository(tmp_path, LIMITS, "x = 1\ny = 2\n"))
    assert [line.split(":")[0] for line in told] == [
        "gpulab without course, teach, views holds 2 lines of code of at most 1"
    ]


def test_a_part_without_a_limit_is_told(tmp_path: Path) -> None:
    told = budgets.over(_repository(tmp_path, LIMITS.replace("virtualgpu/engine", "virtualgpu/motor")))
    assert ["no limit" in told[0], "is no more" in told[1]] == [True, True]


def test_a_limit_has_a_reason(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no reason for the lines of virtualgpu/engine"):
        budgets.over(
            _repository(tmp_path, LIMITS.replace("virtualgpu/engine\t1\tfirst", "virtualgpu/engine\t1\t"))
        )
