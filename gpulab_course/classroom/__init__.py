"""Commands for teachers, graders and scripts, which work on files and do not need Jupyter."""
