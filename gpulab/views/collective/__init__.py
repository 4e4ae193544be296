"""A collective operation: coloured chunks of each GPU, step by step, and what passed each port."""
