"""Headers of CUDA and CuPy that CUDA C++ can include on the virtual GPU."""
