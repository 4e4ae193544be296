"""Bit generators on the virtual GPU: cuRAND's states, one a thread, and the kernels that draw from them."""
