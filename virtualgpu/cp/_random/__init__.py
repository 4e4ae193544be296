"""Bit generators on the virtual GPU: cuRAND's states, one per thread, and the kernels that use them."""
