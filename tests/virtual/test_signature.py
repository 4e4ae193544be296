"""Reading kernel parameters off CUDA C++ source."""

from __future__ import annotations

import pytest

from virtualgpu.launch.signature import find_kernel_names, parse_source_params

CODE = r"""
// __global__ void commented(int n);
__device__ float helper(float x, int k) { return x * k; }
extern "C" __global__ void __launch_bounds__(256, 2)
add(const float* __restrict__ a, float const *b, double * const out, int n = 4, unsigned int m) {
    helper(a[0], add_one(2));
}
/* extern "C" __global__ void gone(int z) {} */
template <typename T, int N>
__global__ void scale(T* x, T factor, unsigned long long *counts, const int sizes[3]) { add(x); }
extern "C" __global__ void nothing() {}
extern "C" __global__ void structs(float4* v, std::pair<int, float> p, int (*f)(int, int), void* raw) {}
"""


def spelled(kernel: str) -> list[tuple[str, str, str]]:
    params = parse_source_params(CODE, kernel)
    assert params is not None
    return [(p.name, p.type_text, p.element) for p in params]


def test_qualifiers_defaults_and_launch_bounds() -> None:
    assert spelled("add") == [
        ("a", "float*", "float32"),
        ("b", "float*", "float32"),
        ("out", "double*", "float64"),
        ("n", "int", ""),
        ("m", "unsigned int", ""),
    ]


def test_template_parameters_have_no_element_type() -> None:
    assert spelled("scale") == [
        ("x", "T*", ""),
        ("factor", "T", ""),
        ("counts", "unsigned long long*", "uint64"),
        ("sizes", "int*", "int32"),
    ]


def test_no_parameters() -> None:
    assert parse_source_params(CODE, "nothing") == ()


def test_unknown_types_have_no_element_type() -> None:
    params = spelled("structs")
    assert len(params) == 4
    assert params[0] == ("v", "float4*", "")
    assert all(element == "" for _, _, element in params)


@pytest.mark.parametrize("name", ["helper", "commented", "gone", "missing"])
def test_only_kernel_definitions_have_parameters(name: str) -> None:
    assert parse_source_params(CODE, name) is None


def test_kernel_names() -> None:
    assert find_kernel_names(CODE) == ("add", "scale", "nothing", "structs")
