"""The device in use; only this package chooses between a real GPU, a virtual GPU and a real GPU's twin."""

from __future__ import annotations

from gpulab._waiting import steps as steps
from gpulab.session.calls import driver_calls as driver_calls
from gpulab.session.current import backend as backend
from gpulab.session.current import bench as bench
from gpulab.session.current import ceilings as ceilings
from gpulab.session.current import cp as cp
from gpulab.session.current import cupyx as cupyx
from gpulab.session.current import here as here
from gpulab.session.current import l1_bytes as l1_bytes
from gpulab.session.current import late_faults as late_faults
from gpulab.session.current import occupancy_on as occupancy_on
from gpulab.session.current import on_device as on_device
from gpulab.session.current import peer_gbps as peer_gbps
from gpulab.session.current import program_lines as program_lines
from gpulab.session.current import program_names as program_names
from gpulab.session.current import real_cp as real_cp
from gpulab.session.current import shown_file as shown_file
from gpulab.session.current import step_ns as step_ns
from gpulab.session.current import step_prices as step_prices
from gpulab.session.current import table as table
from gpulab.session.current import table_info as table_info
from gpulab.session.current import twin as twin
from gpulab.session.current import use_device as use_device
from gpulab.session.current import virtual_side as virtual_side
from gpulab.session.current import which_device as which_device
from gpulab.session.kept import KeptLaunch as KeptLaunch
from gpulab.session.sides import Observed as Observed
from gpulab.session.sides import at_block_size as at_block_size
from gpulab.session.sides import observe as observe
from gpulab.session.sides import occupancies as occupancies
