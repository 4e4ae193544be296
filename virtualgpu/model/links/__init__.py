"""How the GPUs of one machine are joined, who may reach whose memory, and what passes their ports.

`topology`: which GPUs NVLink joins. `ports`: peer access, ways, and the ports that copies and kernels share
(`Machine.links`; `PortRecorder` collects `records.traffic.ports.Crossing`, one for each source and target of
an operation). `rings`: what goes round in a collective call, step by step (`steps`) and in all (`moved`).
`together`: kernels of several devices that end at one time.
"""
