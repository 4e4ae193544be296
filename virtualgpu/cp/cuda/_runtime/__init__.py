"""Parts of ``cp.cuda.runtime``: what is asked about devices, and things by their handles."""
