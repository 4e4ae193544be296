"""A collective operation: coloured chunks of each GPU, step by step, and the traffic of each port."""
