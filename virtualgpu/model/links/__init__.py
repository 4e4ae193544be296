"""Links between the GPUs of one machine: topology, peer access, and traffic through their ports.

`topology`: the pairs of GPUs that NVLink connects. `ports`: peer access, routes, and the ports that copies
and kernels share (`Machine.links`; `PortRecorder` collects `records.traffic.ports.Crossing`, one for each
source and target of an operation). `rings`: the traffic of a collective call, step by step (`make_steps`) and
in total (`count_moved_bytes`). `together`: kernels of several devices that end at the same time.
"""
