"""Exercises of notebook 15."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations, pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from gpulab.processes.errors import short_repr
from gpulab.words import count, size
from gpulab_course.teach.judge import Answer, NotYet, PythonExercise
from gpulab_course.teach.judge.python.functions import is_integer, list_parts, must_be_a_function
from gpulab_course.teach.judge.python.several import RUN_MODES, GpuMachine, open_gpu_machine, run_in_order

RunOutcome = dict[str, Any]


def _judge_run(call_text: str, outcome: RunOutcome, stream_order: Any) -> None:
    """Raise `NotYet` if streams are not ordered, if the host waits, or if a copy goes through the host."""
    if outcome["said"]:
        raise NotYet(f"{call_text}: {' '.join(str(outcome['said'][0]).split())}")
    if stream_order == "as given":
        if outcome["host_bytes"]:
            raise NotYet(
                f"{call_text} moves {size(outcome['host_bytes'])} through the host's memory. Copy from GPU "
                "to GPU: cp.copyto(target, source)."
            )
        if outcome["waits"]:
            raise NotYet(
                f"{call_text} lets the host wait {count(outcome['waits'], 'time')}. Make streams wait for "
                "events instead: stream.wait_event(event)."
            )


def _make_order_text(stream_order: Any) -> str:
    """Return text for a message if the streams run in another order, or "" for the given order."""
    return "" if stream_order in ("as given", "checked") else " in another order that the streams allow"


def _copy_to_host(cp: Any, array: Any) -> Any:
    """Return a copy of a device array on the host."""
    if not array.size:
        return np.empty(array.shape, array.dtype)
    with cp.cuda.Device(array.device.id):
        return array.get()


# 15-ring


def _run_ring(answer: Any, gpu_count: int, inputs: list[Any], stream_order: Any) -> RunOutcome:
    """Run the answer in its own process; return the arrays of all GPUs afterwards, and the costs."""
    with open_gpu_machine(gpu_count) as machine, run_in_order(machine, stream_order) as messages:
        device_arrays = [machine.copy_to_gpu(gpu, array) for gpu, array in enumerate(inputs)]
        _, outcome = machine.run_recorded(
            lambda: answer(machine.cp, list(device_arrays), list(machine.streams))
        )
        outcome["found"] = [machine.read(gpu, device_array) for gpu, device_array in enumerate(device_arrays)]
    return {**outcome, "said": messages}


# Floats would round these integers. The values of the floats are not integers, but their sums are exact.
_SUM_RANGES = {"int32": (2 * 10**8, 1), "int64": (10**17, 1), "float32": (10**5, 8), "float64": (10**13, 8)}


def _draw_sum_input(rng: np.random.Generator, dtype: str, length: int) -> npt.NDArray[Any]:
    """Draw values of a dtype whose sums are exact in any order."""
    max_magnitude, value_divisor = _SUM_RANGES[dtype]
    values = rng.integers(-max_magnitude, max_magnitude, length)
    return (values if value_divisor == 1 else values / value_divisor).astype(dtype)


def judge_ring(answer: Answer) -> str:
    """Judge the learner's ``ring(cp, parts, streams)``, which replaces the array on each GPU with the sum of
    all arrays.
    """
    must_be_a_function("ring", answer.is_function, answer.kind)
    rng = answer.rng
    gpus_and_lengths = [
        (4, 64),
        (2, 7),
        (3, int(rng.integers(40, 90)) * 3 + 1),
        (5, 3),
        (8, int(rng.integers(300, 400)) * 8 + 5),
    ]
    dtypes = [str(dtype) for dtype in rng.permutation(["int32", "int64", "float32", "float64"])]
    for (gpu_count, length), dtype in zip(
        gpus_and_lengths, [*dtypes, str(rng.choice(dtypes[:2]))], strict=True
    ):
        inputs = [_draw_sum_input(rng, dtype, length) for _ in range(gpu_count)]
        expected_sum = np.sum(inputs, axis=0, dtype=dtype)
        for stream_order in RUN_MODES if gpu_count in (3, 4) else RUN_MODES[:2]:
            call_text = f"ring on {gpu_count} GPUs with {count(length, 'element')}"
            outcome = answer.ask(_run_ring, gpu_count, inputs, stream_order, shown=call_text)
            _judge_run(call_text, outcome, stream_order)
            is_right_by_gpu = [np.array_equal(result, expected_sum) for result in outcome["found"]]
            if not all(is_right_by_gpu):
                raise NotYet(
                    _explain_wrong_ring(
                        f"{call_text}{_make_order_text(stream_order)}",
                        is_right_by_gpu,
                        outcome["found"],
                        expected_sum,
                        inputs,
                    )
                )
            max_moved_bytes = 2 * (gpu_count - 1) * -(-length // gpu_count) * inputs[0].itemsize
            if stream_order == "as given":
                for port_direction in ("out", "in"):
                    moved_bytes = max(outcome[port_direction])
                    if moved_bytes > max_moved_bytes:
                        raise NotYet(
                            f"{call_text}: {size(moved_bytes)} "
                            f"{'leave' if port_direction == 'out' else 'arrive at'} GPU "
                            f"{outcome[port_direction].index(moved_bytes)}, and a ring needs at most "
                            f"{size(max_moved_bytes)} at each port: 2·(n − 1) chunks, each to the next GPU."
                        )
    return "every GPU has the sum, and no port passes more than 2·(n − 1) chunks in one direction."


def _explain_wrong_ring(
    call_text: str,
    is_right_by_gpu: Sequence[bool],
    results: Sequence[Any],
    expected: Any,
    inputs: Sequence[Any],
) -> str:
    """Return the feedback for wrong sums."""
    gpu_count = len(inputs)
    length = len(expected)
    wrong_gpu = is_right_by_gpu.index(False)
    if is_right_by_gpu.count(True) == 1:
        message = f"{call_text}: only GPU {is_right_by_gpu.index(True)} has the sum."
        return f"{message} Pass on the finished chunks in another n − 1 steps."
    result = np.asarray(results[wrong_gpu])
    if result.shape != expected.shape:
        return f"{call_text}: write the sum into the arrays of `parts`; do not replace them."
    wrong_indices = np.flatnonzero(result != expected)
    divisible_length = length - length % gpu_count
    if length % gpu_count and wrong_indices.size and wrong_indices[0] >= divisible_length:
        return (
            f"{call_text}: the last {count(length - divisible_length, 'element')} of GPU {wrong_gpu} "
            f"are not the sum. {gpu_count} does not divide {length}: cut chunk k from k * size // n to (k + "
            "1) * size // n."
        )
    has_duplicate = any(
        np.array_equal(result[wrong_indices], (expected + input_array)[wrong_indices])
        for input_array in inputs
    )
    return (
        f"{call_text}: GPU {wrong_gpu} does not have the sum from element {wrong_indices[0]} on"
        + (": one array has been added twice" if has_duplicate else "")
        + ". In the first n − 1 steps, add each chunk that arrives to your own chunk before you "
        "pass that on. In the other n − 1 steps, each chunk that arrives replaces your own."
    )


# 15-broadcast

_BROADCAST_DTYPES = ("float32", "float16", "int64", "uint8")
MAX_MESSAGES = 4


def _draw_arrays(rng: Any, array_count: int) -> list[npt.NDArray[Any]]:
    """Draw small arrays of different dtypes and shapes; some are empty or have no dimensions.

    Short lists have only three of the types, and an empty array of the fourth.
    """
    array_shapes: list[tuple[int, ...]] = [(), (0,), (3,), (1, 5), (7, 3), (2, 3, 4), (33,)]
    fixed_arrays = (
        ("float32", (5,)),
        ("uint8", (0,)),
        ("int64", (7, 3)),
        ("float16", (2, 3, 4)),
        ("int64", ()),
    )
    arrays = []
    for array_index in range(array_count):
        dtype = np.dtype(_BROADCAST_DTYPES[int(rng.integers(len(_BROADCAST_DTYPES) - (array_count < 20)))])
        shape = (
            array_shapes[int(rng.integers(len(array_shapes)))]
            if array_index % 5
            else (int(rng.integers(1, 40)),)
        )
        if array_index < len(fixed_arrays):
            dtype = np.dtype(fixed_arrays[array_index][0])
            shape = fixed_arrays[array_index][1]
        int64_limits = np.iinfo(np.int64)
        values = np.asarray(rng.integers(int64_limits.min, int64_limits.max, shape))
        arrays.append((values % 251 / 8 if dtype.kind == "f" else values).astype(dtype))
    return arrays


def _run_broadcast(
    answer: Any, arrays: list[Any], target_gpus: list[int], transposed_indices: list[int], stream_order: Any
) -> RunOutcome:
    """Run the answer in its own process; return its arrays, their GPUs and alignment, and message counts."""
    with open_gpu_machine(1 + max(target_gpus)) as machine, run_in_order(machine, stream_order) as messages:
        cp = machine.cp
        with cp.cuda.Device(0):
            # The transpose of a transposed copy: its elements are not contiguous.
            inputs = [
                cp.asarray(np.ascontiguousarray(original_array.T)).T
                if index in transposed_indices
                else cp.asarray(original_array)
                for index, original_array in enumerate(arrays)
            ]
        machine.wait_for_gpus()
        result, outcome = machine.run_recorded(lambda: answer(cp, list(inputs), list(target_gpus)))
        array_lists = (
            [list(gpu_arrays) for gpu_arrays in result] if isinstance(result, list | tuple) else None
        )
        machine.wait_for_gpus()
        outcome["kept"] = all(
            array.shape == original_array.shape and np.array_equal(_copy_to_host(cp, array), original_array)
            for array, original_array in zip(inputs, arrays, strict=True)
        )
        outcome["lists"] = None
        if array_lists is not None and all(
            isinstance(gpu_array, cp.ndarray) for gpu_arrays in array_lists for gpu_array in gpu_arrays
        ):
            outcome["lists"] = [
                [
                    [
                        gpu_array.device.id,
                        gpu_array.data.ptr % max(gpu_array.itemsize, 1),
                        _copy_to_host(cp, gpu_array),
                    ]
                    for gpu_array in gpu_arrays
                ]
                for gpu_arrays in array_lists
            ]
    return {**outcome, "said": messages}


def judge_broadcast(answer: Answer) -> str:
    """Judge the learner's ``broadcast(cp, arrays, targets)``, which copies the arrays of GPU 0 to other GPUs
    in few messages.
    """
    must_be_a_function("broadcast", answer.is_function, answer.kind)
    rng = answer.rng
    test_cases: list[tuple[int, list[int], Any]] = [(1, [1], "checked"), (12, [2, 1], "as given")]
    test_cases += [(12, [1, 2], "checked"), (57, [1, 3], RUN_MODES[-1]), (400, [1], "as given")]
    for array_count, target_gpus, stream_order in test_cases:
        arrays = _draw_arrays(rng, array_count)
        transposed_indices = [
            index
            for index, array in enumerate(arrays)
            if array.ndim > 1 and (index < 5 or rng.random() < 0.5)
        ]
        call_text = f"broadcast of {count(array_count, 'array')} to {count(len(target_gpus), 'GPU')}"
        outcome = answer.ask(
            _run_broadcast, arrays, target_gpus, transposed_indices, stream_order, shown=call_text
        )
        _judge_run(call_text, {**outcome, "waits": 0}, "as given")  # the host may wait here
        results_by_gpu = outcome["lists"]
        if results_by_gpu is None or [len(gpu_results) for gpu_results in results_by_gpu] != [
            array_count
        ] * len(target_gpus):
            raise NotYet(
                f"{call_text} should return a list for each GPU of `targets`, with a device array "
                "for each array."
            )
        for target_gpu, gpu_results in zip(target_gpus, results_by_gpu, strict=True):
            if _is_permuted([result for *_, result in gpu_results], arrays):
                raise NotYet(
                    f"{call_text}: the arrays in the list of GPU {target_gpu} are not in the "
                    "order of `arrays`. Put each copy at the index of its original."
                )
            for array_index, ((gpu, misalignment, result), expected) in enumerate(
                zip(gpu_results, arrays, strict=True)
            ):
                item_text = (
                    f"{call_text}{_make_order_text(stream_order)}: array {array_index} of GPU {target_gpu}"
                )
                _judge_array(item_text, gpu, target_gpu, misalignment, result, expected)
        if not outcome["kept"]:
            raise NotYet(f"{call_text} changes the arrays on GPU 0, which belong to the caller.")
        for target_gpu in target_gpus:
            if outcome["messages"][target_gpu] > MAX_MESSAGES:
                raise NotYet(
                    f"{call_text} sends GPU {target_gpu} {outcome['messages'][target_gpu]} messages, but "
                    f"{MAX_MESSAGES} are enough. Join the arrays on GPU 0, send the joined array, and cut "
                    "it on the target GPU."
                )
            max_received_bytes = sum(array.nbytes for array in arrays) + 256 * array_count
            if outcome["in"][target_gpu] > max_received_bytes:
                raise NotYet(
                    f"{call_text}: {size(outcome['in'][target_gpu])} arrive at GPU {target_gpu}, "
                    f"but {size(max_received_bytes)} are enough: the bytes of all arrays, and "
                    "256 additional bytes per array."
                )
    return f"400 arrays of four types arrive unchanged, in at most {MAX_MESSAGES} messages."


def _is_permuted(results: Sequence[npt.NDArray[Any]], arrays: Sequence[npt.NDArray[Any]]) -> bool:
    """Return whether the results are the right arrays in a wrong order."""

    def compute_fingerprints(
        arrays_to_compare: Sequence[npt.NDArray[Any]],
    ) -> list[tuple[str, tuple[int, ...], bytes]]:
        return [(array.dtype.name, array.shape, array.tobytes()) for array in arrays_to_compare]

    return compute_fingerprints(results) != compute_fingerprints(arrays) and sorted(
        compute_fingerprints(results)
    ) == sorted(compute_fingerprints(arrays))


def _judge_array(
    item_text: str, gpu: int, target_gpu: int, misalignment: int, result: Any, expected: Any
) -> None:
    """Compare a copy on a target GPU with the original array."""
    if gpu != target_gpu and expected.size:
        raise NotYet(f"{item_text} is on GPU {gpu}.")
    if result.dtype != expected.dtype:
        raise NotYet(
            f"{item_text} is {result.dtype}, not {expected.dtype}. Joining arrays of mixed types converts "
            "them. Join the arrays of each type separately, or join bytes."
        )
    if misalignment:
        raise NotYet(
            f"{item_text} begins {misalignment} bytes after a multiple of its element "
            "size, so a kernel that reads it would fail. Start each array at a multiple "
            "of 16 bytes, or join the arrays of each type separately."
        )
    if result.shape != expected.shape:
        raise NotYet(
            f"{item_text} has shape {result.shape}, not {expected.shape}. Keep the order, and reshape each "
            "piece that you cut out."
        )
    if not np.array_equal(result, expected):
        with np.errstate(all="ignore"):
            rounded_variants = [
                expected.astype(rounding_dtype).astype(expected.dtype)
                for rounding_dtype in ("float64", "float32", "float16")
            ]
        if any(np.array_equal(result, rounded_result) for rounded_result in rounded_variants):
            raise NotYet(
                f"{item_text} contains {short_repr(result.ravel()[:3].tolist())} …, not "
                f"{short_repr(expected.ravel()[:3].tolist())} …. The data was converted to another type and "
                "back, which rounds the values. Join the arrays of each type separately, or join bytes."
            )
        raise NotYet(
            f"{item_text} contains {short_repr(result.ravel()[:3].tolist())} …, not "
            f"{short_repr(expected.ravel()[:3].tolist())} …. Put each copy at the index of its original, "
            "and keep the order of its elements. Take care with transposed arrays."
        )


# 15-halo


def _run_exchange(answer: Any, fields: list[list[Any]], stream_order: Any) -> RunOutcome:
    """Run the answer in its own process; return all parts, and whether opposite transfers overlap."""
    rows = len(fields)
    columns = len(fields[0])
    with open_gpu_machine(rows * columns) as machine, run_in_order(machine, stream_order) as messages:
        device_fields = [
            [
                machine.copy_to_gpu(row_index * columns + column, fields[row_index][column])
                for column in range(columns)
            ]
            for row_index in range(rows)
        ]
        streams = [
            [machine.streams[row_index * columns + column] for column in range(columns)]
            for row_index in range(rows)
        ]
        _, outcome = machine.run_recorded(
            lambda: answer(machine.cp, [list(row) for row in device_fields], streams)
        )
        outcome["bound"] = _find_serialized_gpu(machine, rows, columns) if stream_order == "as given" else []
        outcome["found"] = [
            [
                machine.read(row_index * columns + column, device_fields[row_index][column])
                for column in range(columns)
            ]
            for row_index in range(rows)
        ]
    return {**outcome, "said": messages}


def _find_serialized_gpu(machine: GpuMachine, rows: int, columns: int) -> list[int]:
    """Return a list with a GPU whose transfers with opposite neighbours do not overlap, or an empty list."""
    endpoint_getters: list[tuple[Callable[[Any], int], Callable[[Any], int]]] = [
        (lambda c: int(c.source), lambda c: int(c.target)),
        (lambda c: int(c.target), lambda c: int(c.source)),
    ]
    for gpu in range(rows * columns):
        row, column = divmod(gpu, columns)
        for first_neighbour, second_neighbour in (
            ((row - 1, column), (row + 1, column)),
            ((row, column - 1), (row, column + 1)),
        ):
            if not all(
                0 <= neighbour_row < rows and 0 <= neighbour_column < columns
                for neighbour_row, neighbour_column in (first_neighbour, second_neighbour)
            ):
                continue
            neighbours = [
                neighbour_row * columns + neighbour_column
                for neighbour_row, neighbour_column in (first_neighbour, second_neighbour)
            ]
            for get_own_gpu, get_other_gpu in endpoint_getters:
                transfers = [
                    [
                        crossing.correlation_id
                        for crossing in machine.link_crossings
                        if get_own_gpu(crossing) == gpu and get_other_gpu(crossing) == neighbour
                    ]
                    for neighbour in neighbours
                ]
                id_pairs = [(first_id, second_id) for first_id in transfers[0] for second_id in transfers[1]]
                if id_pairs and all(machine.must_follow(max(id_pair), min(id_pair)) for id_pair in id_pairs):
                    return [gpu]
    return []


def judge_exchange(answer: Answer) -> str:
    """Judge the learner's ``exchange(cp, parts, streams)``, which fills the halo of each part with the edges
    of its neighbours.
    """
    must_be_a_function("exchange", answer.is_function, answer.kind)
    rng = answer.rng
    # Some parts have a single row or column, which is both their first and their last edge.
    random_sizes = [
        (int(part_height), int(part_width)) for part_height, part_width in rng.integers(2, 7, (3, 2))
    ]
    flat_sizes = [(1, random_sizes[1][0]), (random_sizes[2][1], 1)]
    other_sizes = [*flat_sizes, *random_sizes[1:]]
    part_sizes = [(5, random_sizes[0][0]), *(other_sizes[int(n)] for n in rng.permutation(4))]
    gpu_grids = ((3, 1), (1, 3), (2, 2), (3, 2), (3, 3))
    dtypes = ("float32", "float64", "float32", "float64", "float32")
    for (gpu_rows, gpu_columns), (part_height, part_width), dtype in zip(
        gpu_grids, part_sizes, dtypes, strict=True
    ):
        # All values differ, and no integer type or shorter float can represent them.
        field_values = (
            rng.permutation(gpu_rows * part_height * gpu_columns * part_width).reshape(
                gpu_rows * part_height, gpu_columns * part_width
            )
            / 3
            + 2048
        ).astype(dtype)
        bordered_field = -2 - rng.permutation(
            (gpu_rows * part_height + 2) * (gpu_columns * part_width + 2)
        ).reshape(gpu_rows * part_height + 2, -1).astype(dtype)
        bordered_field[1:-1, 1:-1] = field_values
        part_slices = [
            [
                np.s_[
                    row * part_height : row * part_height + part_height + 2,
                    column * part_width : column * part_width + part_width + 2,
                ]
                for column in range(gpu_columns)
            ]
            for row in range(gpu_rows)
        ]
        expected = [[bordered_field[part_slice] for part_slice in row_slices] for row_slices in part_slices]
        # Rims start with -1, except outside of the whole field, where they are below -1 and must stay.
        fields = [
            [np.where(part_cells < 0, part_cells, -1).astype(dtype) for part_cells in row_cuts]
            for row_cuts in expected
        ]
        for field_row, expected_row in zip(fields, expected, strict=True):
            for field, expected_part in zip(field_row, expected_row, strict=True):
                field[1:-1, 1:-1] = expected_part[1:-1, 1:-1]
        for stream_order in RUN_MODES if (gpu_rows, gpu_columns) in ((3, 2), (1, 3)) else RUN_MODES[:2]:
            call_text = f"exchange on {gpu_rows} × {gpu_columns} GPUs, parts of {part_height} × {part_width}"
            outcome = answer.ask(_run_exchange, fields, stream_order, shown=call_text)
            _judge_run(call_text, outcome, stream_order)
            for row in range(gpu_rows):
                for column in range(gpu_columns):
                    _judge_part(
                        f"{call_text}{_make_order_text(stream_order)}: part ({row}, {column})",
                        outcome["found"][row][column],
                        expected[row][column],
                    )
            if outcome["bound"]:
                raise NotYet(
                    f"{call_text}: GPU {outcome['bound'][0]} exchanges data with two opposite neighbours one "
                    "after the other, although both exchanges could run at the same time. Use a "
                    "separate stream for each copy."
                )
            if stream_order == "as given":
                max_sent_bytes = 2 * (part_height + part_width + 6) * field_values.itemsize * 2
                if max(outcome["out"]) > max_sent_bytes:
                    raise NotYet(
                        f"{call_text}: {size(max(outcome['out']))} leave one GPU. Send edges, not whole "
                        f"parts: {size(max_sent_bytes)} are enough."
                    )
    return (
        "rims and corners have the neighbours' values in any order of streams, and opposite "
        "copies can overlap."
    )


def _judge_part(part_text: str, result: Any, expected: Any) -> None:
    """Compare a part of the field after the exchange with the expected part."""
    if np.array_equal(result, expected):
        return
    if result.shape != expected.shape:
        raise NotYet(f"{part_text} has a different shape than before.")
    if not np.array_equal(result[1:-1, 1:-1], expected[1:-1, 1:-1]):
        raise NotYet(
            f"{part_text}: its own cells have changed. Write only into rows 0 and −1 and columns 0 and −1."
        )
    corner_indices = (0, 0, -1, -1), (0, -1, 0, -1)
    result_with_corners = result.copy()
    result_with_corners[corner_indices] = expected[corner_indices]
    if np.array_equal(result_with_corners, expected):
        raise NotYet(
            f"{part_text}: a corner does not have the value of the diagonal neighbour. Exchange "
            "rows first. Then exchange full columns, with the corners that arrived with the rows."
        )
    wrong_index = np.argwhere(result != expected)[0].tolist()
    raise NotYet(
        f"{part_text}: cell {tuple(wrong_index)} of the rim is {result[tuple(wrong_index)]:g}, not "
        f"{expected[tuple(wrong_index)]:g}. The edge of a neighbour is its row (or column) 1 or −2. "
        "Its row (or column) 0 or −1 is a rim itself. Rim cells outside the whole field must not change."
    )


# 15-place


def _draw_topologies(rng: Any) -> list[tuple[str, int, set[tuple[int, ...]], list[list[int]]]]:
    """Draw machines: a description, the number of GPUs, the linked pairs, and the rings of ranks."""

    def draw_islands(sizes: Sequence[int]) -> set[tuple[int, ...]]:
        gpu_order = rng.permutation(sum(sizes)).tolist()
        links = set()
        island_start = 0
        for island_size in sizes:
            links |= {
                tuple(sorted(gpu_pair))
                for gpu_pair in combinations(gpu_order[island_start : island_start + island_size], 2)
            }
            island_start += island_size
        return links

    def draw_groups(sizes: Sequence[int]) -> list[list[int]]:
        gpu_permutation = rng.permutation(sum(sizes)).tolist()
        group_starts = np.cumsum([0, *sizes]).tolist()
        return [gpu_permutation[group_start:group_end] for group_start, group_end in pairwise(group_starts)]

    def draw_cube_links() -> set[tuple[int, ...]]:
        gpu_of_vertex = rng.permutation(8).tolist()
        return {
            tuple(sorted((gpu_of_vertex[vertex], gpu_of_vertex[vertex ^ dimension_bit])))
            for vertex in range(8)
            for dimension_bit in (1, 2, 4)
        }

    # A row from 0 to 5 with two more links; it does not close to a ring in this order.
    gpu_row = [0, 1, 2, 3, 4, 5]
    row_links: set[tuple[int, ...]] = {(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (2, 5), (0, 3)}
    interleaved_rings = [[0, 2, 4, 6], [1, 3, 5, 7]]
    four_links = {
        tuple(sorted(gpu_pair)) for k in range(2) for gpu_pair in combinations(range(4 * k, 4 * k + 4), 2)
    }
    return [
        ("4 GPUs in pairs", 4, {(0, 1), (2, 3)}, [[0, 2], [1, 3]]),
        ("4 GPUs in pairs", 4, draw_islands([2, 2]), draw_groups([2, 2])),
        ("8 GPUs in fours", 8, four_links, interleaved_rings),
        ("8 GPUs in pairs", 8, draw_islands([2] * 4), draw_groups([2] * 4)),
        ("8 GPUs in fours", 8, draw_islands([4, 4]), draw_groups([2, 2, 4])),
        ("8 GPUs, 4 and 2 and 2", 8, draw_islands([2, 4, 2]), draw_groups([2, 2, 1, 3])),
        ("6 GPUs in a row that does not close", 6, row_links, [gpu_row]),
        *(
            ("8 GPUs as a cube", 8, draw_cube_links(), draw_groups(ring_sizes))
            for ring_sizes in ([8], [8], [4, 4], [6, 2], [8])
        ),
        ("12 GPUs in fours", 12, draw_islands([4, 4, 4]), draw_groups([3, 1, 4, 2, 2])),
        ("6 GPUs in threes", 6, draw_islands([3, 3]), draw_groups([3, 3])),
    ]


def judge_place(answer: Answer) -> str:
    """Judge the learner's ``place(gpus, joined, rings)``, which places communicating ranks on GPUs that have
    a link.
    """
    must_be_a_function("place", answer.is_function, answer.kind)
    for description, gpu_count, links, rings in _draw_topologies(answer.rng):
        call_text = f"place for {description}"
        link_list = sorted([list(gpu_pair) for gpu_pair in links])
        gpus_by_rank = list_parts(
            answer.call_as(call_text, gpu_count, link_list, [list(ring) for ring in rings])
        )
        if (
            gpus_by_rank is None
            or not all(map(is_integer, gpus_by_rank))
            or sorted(gpus_by_rank) != list(range(gpu_count))
        ):
            raise NotYet(
                f"{call_text} should return a list that contains each GPU from 0 to "
                f"{gpu_count - 1} once, in the order of the ranks."
            )
        for ring in rings:
            for rank, next_rank in zip(ring, [*ring[1:], ring[0]], strict=True):
                gpu_pair = tuple(sorted((gpus_by_rank[rank], gpus_by_rank[next_rank])))
                if rank != next_rank and gpu_pair not in links:
                    raise NotYet(
                        f"{call_text}: ranks {rank} and {next_rank} exchange data, but are on GPUs "
                        f"{gpus_by_rank[rank]} and {gpus_by_rank[next_rank]} without a link, so the "
                        "data go over PCIe. The linked pairs are "
                        f"{_make_pairs_text(link_list)}; the rings are {rings}."
                    )
    return "all ranks that exchange data have a link, on pairs, groups of four, mixed groups and a cube."


def _make_pairs_text(gpu_pairs: Sequence[Sequence[int]]) -> str:
    """Return pairs of GPUs as text."""
    return ", ".join(f"{a}-{b}" for a, b in gpu_pairs)


# 15-shard


def _compute_allowed_error(h: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return the allowed error in single precision, which depends on the size of the scores."""
    magnitudes = np.abs(h.astype(np.float64))
    max_scores = (magnitudes @ magnitudes.T).max(axis=1, keepdims=True) / np.sqrt(h.shape[1])
    tolerance: npt.NDArray[Any] = 2.0**-24 * (16 + 6 * max_scores) * magnitudes.max(axis=0)
    return tolerance


def _compute_attention(
    h: npt.NDArray[Any],
    score_divisor: float = 0,
    gelu_first: bool = False,
    gelu_between: bool = False,
    gelu_last: bool = True,
) -> npt.NDArray[Any]:
    """Compute the expected attention, or a wrong variant of it."""

    def apply_gelu(x: npt.NDArray[Any], is_applied: bool) -> npt.NDArray[Any]:
        return 0.5 * x * (1 + np.tanh(0.79788456 * (x + 0.044715 * x**3))) if is_applied else x

    h = h.astype(np.float64)
    scores = h @ h.T / (score_divisor or np.sqrt(h.shape[1]))
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    weights = apply_gelu(powers / powers.sum(axis=1, keepdims=True), gelu_between)
    return apply_gelu(weights @ apply_gelu(h, gelu_first), gelu_last and not gelu_first and not gelu_between)


def _explain_wrong_shard(result: Any, inputs: npt.NDArray[Any], own_rows: slice) -> str:
    """Return the feedback for wrong rows: the mistake that explains them, or a list of all steps."""
    if not np.isfinite(result).all():
        return (
            "Does exp overflow here? From a row's scores against all rows, subtract their maximum before exp."
        )
    rows, d = inputs.shape
    expected = _compute_attention(inputs)
    mistakes = (
        (_compute_attention(inputs, score_divisor=1), f"The scores are not divided by √d, that is √{d}."),
        (
            _compute_attention(inputs, score_divisor=np.sqrt(rows)),
            f"The scores are divided by √{rows}. d is the length of a row, {d}.",
        ),
        (_compute_attention(inputs, score_divisor=d), f"The scores are divided by {d}, not by its root."),
        (_compute_attention(inputs, gelu_last=False), "The last step, gelu, is missing."),
        (
            _compute_attention(inputs, gelu_first=True),
            "Apply gelu last: to the result of the matrix multiplication.",
        ),
        (
            _compute_attention(inputs, gelu_between=True),
            "Apply gelu last: to the result of the matrix multiplication.",
        ),
    )

    def is_match(variant: npt.NDArray[Any]) -> bool:
        return np.allclose(result, variant[own_rows], rtol=1e-3, atol=1e-3 * np.abs(inputs).max())

    lessons = [] if is_match(expected) else [lesson for variant, lesson in mistakes if is_match(variant)]
    if lessons:
        return lessons[0]
    return (
        "Compare each step with NumPy's: a row's scores against all rows, divided by √d, minus "
        "their maximum; exp; division by the sum; multiplication by h; gelu."
    )


def _run_shard(answer: Any, shards: list[Any], stream_order: Any) -> RunOutcome:
    """Run the answer in its own process; return its results and the GPUs on which they are."""
    with open_gpu_machine(len(shards)) as machine, run_in_order(machine, stream_order) as messages:
        cp = machine.cp
        device_rows = [machine.copy_to_gpu(gpu, array) for gpu, array in enumerate(shards)]
        machine.wait_for_gpus()
        result, outcome = machine.run_recorded(lambda: answer(cp, list(device_rows)))
        results = list(result) if isinstance(result, list | tuple) else [result]
        are_arrays = all(isinstance(result_array, cp.ndarray) for result_array in results)
        # Read the results in each GPU's default stream, as a caller would.
        outcome["found"] = (
            [[result_array.device.id, _copy_to_host(cp, result_array)] for result_array in results]
            if are_arrays
            else None
        )
        machine.wait_for_gpus()
        outcome["kept"] = [
            np.array_equal(_copy_to_host(cp, device_array), shard)
            for device_array, shard in zip(device_rows, shards, strict=True)
        ]
    return {**outcome, "said": messages}


def judge_shard(answer: Answer) -> str:
    """Judge the learner's ``shard(cp, parts)``, which computes attention on several GPUs with one gather
    operation.
    """
    must_be_a_function("shard", answer.is_function, answer.kind)
    rng = answer.rng
    random_lengths = [int(n) for n in rng.integers(2, 14, 3)]
    row_widths = [int(row_width) for row_width in rng.permutation([4, 5, 8, 12])]
    # The same shapes come twice, with other numbers.
    # Scores of the second and the fourth are so large that their exponentials overflow.
    input_scales = (1, 12, 3, 12, 3)
    mode_indices = (0, 1, 3, 1, 0)
    for test_index, shard_lengths in enumerate(
        ([8, 8], [5, 11], [7, 3, 9, 1], random_lengths, random_lengths)
    ):
        row_width = row_widths[min(test_index, 3)]
        inputs = (rng.standard_normal((sum(shard_lengths), row_width)) * input_scales[test_index]).astype(
            np.float32
        )
        if test_index == 2:  # large scores of the first GPU's rows with a row of the third GPU
            inputs[-2] = 40 * np.sign(inputs[0])
        shard_starts = np.cumsum([0, *shard_lengths]).tolist()
        shards = [inputs[shard_start:shard_end] for shard_start, shard_end in pairwise(shard_starts)]
        call_text = f"shard of {' + '.join(map(str, shard_lengths))} rows of {row_width}"
        stream_order = RUN_MODES[mode_indices[test_index]]
        outcome = answer.ask(_run_shard, shards, stream_order, shown=call_text)
        _judge_run(call_text, {**outcome, "waits": 0}, "as given")  # the host may wait here
        call_text += _make_order_text(stream_order)
        results = outcome["found"]
        if results is None or [gpu for gpu, _ in results] != list(range(len(shards))):
            raise NotYet(f"{call_text} should return a list of device arrays, with entry k on GPU k.")
        if not all(outcome["kept"]):
            raise NotYet(f"{call_text} changes the parts, which belong to the caller.")
        expected = _compute_attention(inputs)
        tolerance = _compute_allowed_error(inputs)
        local_attention = np.concatenate([_compute_attention(shard) for shard in shards])
        for gpu, (_, result) in enumerate(results):
            shard_start = shard_starts[gpu]
            shard_end = shard_starts[gpu + 1]
            if result.shape != expected[shard_start:shard_end].shape:
                raise NotYet(
                    f"{call_text}: the result on GPU {gpu} has shape {result.shape}, not "
                    f"{expected[shard_start:shard_end].shape}."
                )
            if result.dtype != inputs.dtype:
                raise NotYet(
                    f"{call_text}: the result on GPU {gpu} is {result.dtype}, but the rows are "
                    f"{inputs.dtype}. An "
                    "operation with a NumPy number of another type, such as np.sqrt(d), converts "
                    "the result to that type."
                )
            is_wrong = ~(np.abs(result - expected[shard_start:shard_end]) <= tolerance[shard_start:shard_end])
            if not is_wrong.any():
                continue
            if np.allclose(result, local_attention[shard_start:shard_end], rtol=2e-4, atol=2e-5):
                raise NotYet(
                    f"{call_text}: GPU {gpu} uses only its own rows. Softmax needs the scores "
                    "against all rows."
                )
            raise NotYet(
                f"{call_text}: GPU {gpu} returns {result[is_wrong][0]:.7g} where "
                f"{expected[shard_start:shard_end][is_wrong][0]:.7g} is right. "
                f"{_explain_wrong_shard(result, inputs, slice(shard_start, shard_end))}"
            )
        for gpu, shard in enumerate(shards):
            max_moved_bytes = inputs.nbytes - shard.nbytes
            if outcome["in"][gpu] > max_moved_bytes:
                raise NotYet(
                    f"{call_text}: {size(outcome['in'][gpu])} arrive at GPU {gpu}, but "
                    f"the rows of the other GPUs have only {size(max_moved_bytes)}. Gather "
                    "these rows once, keep them, and compute everything else from them."
                )
            max_moved_bytes = max(shard.nbytes * (len(shards) - 1), inputs.nbytes)
            if outcome["out"][gpu] > max_moved_bytes:
                raise NotYet(
                    f"{call_text}: {size(outcome['out'][gpu])} leave GPU {gpu}. Each GPU "
                    "should send its own rows; no GPU should send the rows of all GPUs."
                )
    return "the rows of the other GPUs arrive at each GPU only once."


EXERCISES = (
    PythonExercise("15-ring", "A ring all-reduce", judge_ring),
    PythonExercise("15-broadcast", "400 arrays in four messages", judge_broadcast),
    PythonExercise("15-place", "Assign ranks to GPUs", judge_place),
    PythonExercise("15-halo", "Halo exchange", judge_exchange, level="stretch"),
    PythonExercise("15-shard", "Attention over shards", judge_shard),
)
