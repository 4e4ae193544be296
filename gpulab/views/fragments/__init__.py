"""The fragment view: lanes and registers of the elements of matrix instructions, and their shared memory."""
