"""Implementation of `cp.cuda.memory`: memory pointers, copies, managed memory and pools."""
