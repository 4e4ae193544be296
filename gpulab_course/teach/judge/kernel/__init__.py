"""Judge of kernel exercises: it compiles an answer, launches it on a virtual GPU, and tests five stages."""
