"""Predictions of notebook 12."""

from gpulab_course.teach.question import PredictionQuestion

PREDICTIONS = (
    PredictionQuestion(
        "12-passes",
        "x has a million floats. How many floats do the nine passes read and write in total, in millions?",
        "Each of the nine kernels writes a million floats. Seven of them read one array of that size "
        "(v * v reads v only once). Two of them, v * (…) and v / (…), read two arrays. That is "
        "9 + 7 + 4 = 20 million.",
        unit="million",
        comparison=3,
        misconception="The arrays are read once and the result written once, so it is about 2 or 3 million.",
    ),
    PredictionQuestion(
        "12-norm",
        "Layer norm takes seven passes. How many kernels does the fuser make of them?",
        "Each of the two sums over a row must be complete before the next step starts. The differences that "
        "the second sum squares are needed again for the result, so a separate kernel stores them. So there "
        "are four kernels, and they move nearly as many bytes as the seven passes.",
        choices=("1", "2", "4", "7"),
        comparison="1",
        misconception="Fusing removes all intermediate results.",
    ),
    PredictionQuestion(
        "12-gemm",
        "This kernel computes the matrix multiplication, the layer norm and GELU. The alternative is "
        "cuBLAS and a second kernel for the rest, with one more round trip through memory. x has 8,192 "
        "rows of 1,024 elements. How long does the one kernel take on an H200, compared with these two?",
        "Each block loads all of w and uses each element for only 8 rows. A tile of cuBLAS uses each element "
        "for many more rows. This saves more time than the round trip through memory takes.",
        choices=("less time", "about as long", "longer"),
        comparison="less time",
        misconception="The kernel that moves the fewest bytes of memory takes the least time.",
    ),
    PredictionQuestion(
        "12-one-launch",
        "On a GPU, CuPy's fuse makes a softmax of one row of a million floats into a single launch. How long "
        "does it take, compared with seven launches?",
        "The one kernel must finish the maximum and the sum before it continues. Its blocks wait for each "
        "other at barriers of the whole grid, and CuPy launches only as many blocks as fit on one SM. The "
        "seven kernels use the whole GPU.",
        choices=("a seventh of the time", "about half", "longer"),
        comparison="a seventh of the time",
        misconception="Fewer launches are faster.",
    ),
    PredictionQuestion(
        "12-factor",
        "Sixteen passes over 67 million floats become one kernel on an H200. How many times as fast is it?",
        "Each pass moves as many bytes as the one kernel, and these bytes limit the time. So the factor is "
        "the number of passes.",
        unit="times",
        comparison=5,
        misconception="Fusion gains a factor of 2 to 5.",
    ),
    PredictionQuestion(
        "12-retraces",
        "A compiled function is called six times: twice with the same array, then with an array with more "
        "rows, a float16 array, a transposed array, and the first array again. How often is the function "
        "compiled?",
        "Shape, dtype and layout have guards, so three more calls compile after the first one. If all guards "
        "of an earlier program are true, the call runs this program, however long ago it was compiled.",
        choices=("once", "3 times", "4 times", "6 times"),
        comparison="once",
        misconception="A compiled function is compiled once.",
    ),
    PredictionQuestion(
        "12-folded",
        "A traced function has the line `if verbose:`, where `verbose` is a global variable of the "
        "notebook with a number. You change the number and call the function again. What happens?",
        "The branch was chosen while tracing and is not in the graph. A guard on the name notices that the "
        "number has changed. Without this guard, the old code would run.",
        choices=("the old kernel runs, with the old answer", "it is compiled again", "an error"),
        comparison="the old kernel runs, with the old answer",
        misconception="A value that was folded while tracing never changes again.",
    ),
    PredictionQuestion(
        "12-nvrtc",
        "The same source is launched in a new process. How long does the first launch take on an H200, where "
        "compiling took 43 ms?",
        "The compiled code is in a file whose name is a hash of source, options, architecture and versions. "
        "CuPy only has to read it.",
        choices=("about 43 ms", "some milliseconds", "less than 1 ms"),
        comparison="about 43 ms",
        misconception="A new process compiles its kernels again.",
    ),
    PredictionQuestion(
        "12-operator",
        "torch.compile compiles relu(f(2 * x, w, b)) + 1. If f is array code, all of it becomes one kernel. "
        "How many kernels run if f is the custom operator?",
        "The compiler does not know what a custom operator computes, so it cannot fuse anything with it. "
        "There is one kernel before the operator, one kernel in it, and one kernel after it.",
        choices=("1", "2", "3"),
        comparison="1",
        misconception="A compiler fuses all operations of its graph.",
    ),
)
