"""Pictures of memory traffic: a function's expressions, kernels, fusion boundaries and moved bytes."""
