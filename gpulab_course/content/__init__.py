"""The course, one folder a notebook (``n02_grid`` belongs to notebook 02): texts, figures, kernels.

A folder may hold ``exercises.py`` (``EXERCISES``), ``quiz.py`` (``TITLE``, ``QUESTIONS``), ``figures.py``,
``shown_answers.py`` (``SHOWN``) and ``kernels/*.cu``. `gpulab_course.folders`
finds them by name; nothing is registered anywhere.
"""
