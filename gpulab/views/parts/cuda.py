"""Tokens of CUDA C++ source, for coloured listings.

The colour of a kind is ``code-KIND`` in `gpulab.views.parts.palette`. The colours of notebook cells come from
the JupyterLab extension in ``gpulab/data/labextensions``, which has the same kinds and words.
"""

from __future__ import annotations

import re

_WORDS_OF_KIND = {
    "keyword": """__global__ __device__ __host__ __shared__ __constant__ __managed__ __restrict__
        __forceinline__ __noinline__ __launch_bounds__ __grid_constant__ alignas alignof asm auto break case
        class const const_cast consteval constexpr constinit continue decltype default delete do dynamic_cast
        else enum explicit extern false final for friend goto if inline mutable namespace new noexcept nullptr
        operator override private protected public register reinterpret_cast requires return sizeof static
        static_assert static_cast struct switch template this throw true try catch typedef typename union
        using virtual volatile while concept""",
    "type": """bool char char8_t char16_t char32_t double float int long short signed unsigned void wchar_t
        size_t ptrdiff_t half half2 __half __half2 __nv_bfloat16 __nv_bfloat162 dim3 cudaStream_t clock_t""",
    "builtin": "threadIdx blockIdx blockDim gridDim warpSize",
}
_TOKEN_KIND_OF_WORD = {word: kind for kind, words in _WORDS_OF_KIND.items() for word in words.split()}
_TYPE_PATTERN = re.compile(
    r"u?int\d+(?:_fast|_least)?_t|u?(?:char|short|int|long|longlong)[1-4]|(?:float|double)[1-4]"
)
# Alternatives are tried in this order: comments and strings hide everything inside them.
_TOKEN_PATTERN = re.compile(
    r"(?P<comment>//[^\n]*|/\*(?s:.*?)(?:\*/|\Z))"
    r"|(?P<meta>^[ \t]*\#(?:\\\n|[^\n/]|/(?![/*]))*)"
    r"|(?P<string>\"(?:\\.|[^\"\\\n])*\"?|'(?:\\.|[^'\\\n])+'?)"
    r"|(?P<number>(?:0[xX][\da-fA-F']+|(?:\d[\d']*\.?[\d']*|\.\d+)(?:[eE][-+]?\d+)?)[uUlLfF]*)"
    r"|(?P<call>[A-Za-z_]\w*(?=\s*(?:<[\w\s,:*]*>)?\())"
    r"|(?P<plain>[A-Za-z_]\w*|\n|[^\S\n]+|\S)",
    re.MULTILINE,
)


def split_tokens(code: str) -> list[list[tuple[str, str]]]:
    """Divide CUDA C++ source into the tokens of each line.

    Parameters
    ----------
    code
        The source; it may be incomplete or wrong.

    Returns
    -------
    list of list of tuple
        For each line its tokens, each with its kind and text: ``("keyword", "if")``. The kind of names,
        operators and spaces is an empty text. The texts of a line together are the line.
    """
    lines: list[list[tuple[str, str]]] = [[]]
    for match in _TOKEN_PATTERN.finditer(code):
        group_name = str(match.lastgroup)
        token_kind = _TOKEN_KIND_OF_WORD.get(
            match[0],
            "type" if _TYPE_PATTERN.fullmatch(match[0]) else "" if group_name == "plain" else group_name,
        )
        first_text, *later_texts = match[0].split("\n")
        lines[-1] += [(token_kind, first_text)] if first_text else []
        lines += [[(token_kind, text)] if text else [] for text in later_texts]
    return lines
