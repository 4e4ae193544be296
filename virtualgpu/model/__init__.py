"""Model of the GPU hardware: devices, memory, clock, cost of operations, and placement of blocks on SMs."""
