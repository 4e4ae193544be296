"""The content of the course, one folder per notebook (``n02_grid`` belongs to notebook 02).

A folder can contain ``exercises.py`` (``EXERCISES``), ``quiz.py`` (``TITLE``, ``QUESTIONS``), ``figures.py``,
``shown_answers.py`` (``SHOWN``) and ``kernels/*.cu``. `gpulab_course.folders` finds them by name, so that
nothing has to be registered.
"""
