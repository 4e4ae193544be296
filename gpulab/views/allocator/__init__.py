"""What a memory pool holds, step by step: segments, blocks, what is free and what fails."""
