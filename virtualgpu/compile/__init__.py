"""CUDA C++ to PTX and machine code, and what can be read off both."""
