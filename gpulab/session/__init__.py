"""The device in use; only this package chooses between a real GPU, a virtual GPU and a real GPU's twin."""

from __future__ import annotations

from gpulab._waiting import show_steps as show_steps
from gpulab.session.calls import count_driver_calls as count_driver_calls
from gpulab.session.current import backend as backend
from gpulab.session.current import bind_current_device as bind_current_device
from gpulab.session.current import compute_l1_bytes as compute_l1_bytes
from gpulab.session.current import compute_occupancy_on as compute_occupancy_on
from gpulab.session.current import compute_peer_gbps as compute_peer_gbps
from gpulab.session.current import compute_step_ns as compute_step_ns
from gpulab.session.current import cp as cp
from gpulab.session.current import cupyx as cupyx
from gpulab.session.current import find_ceilings as find_ceilings
from gpulab.session.current import find_step_prices as find_step_prices
from gpulab.session.current import find_table_info as find_table_info
from gpulab.session.current import find_twin as find_twin
from gpulab.session.current import format_file_name as format_file_name
from gpulab.session.current import list_table_devices as list_table_devices
from gpulab.session.current import make_program_lines as make_program_lines
from gpulab.session.current import make_program_names as make_program_names
from gpulab.session.current import on_device as on_device
from gpulab.session.current import real_cp as real_cp
from gpulab.session.current import report_late_faults as report_late_faults
from gpulab.session.current import use_bench_device as use_bench_device
from gpulab.session.current import use_device as use_device
from gpulab.session.current import virtual_side as virtual_side
from gpulab.session.current import which_device as which_device
from gpulab.session.kept import KeptLaunch as KeptLaunch
from gpulab.session.sides import ObservedRecord as ObservedRecord
from gpulab.session.sides import make_block_size_launcher as make_block_size_launcher
from gpulab.session.sides import make_occupancy_function as make_occupancy_function
from gpulab.session.sides import observe as observe
