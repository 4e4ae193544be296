"""Teaching kernels that are truly fast, each subject as a ladder of rungs."""
