"""The machinery that shows and judges predictions, exercises, quizzes and interviews, and stores the answers.

The texts are in `gpulab_course.content`, and `gpulab_course.api` joins both.
"""

from gpulab_course.teach.judge.verdict import Verdict
from gpulab_course.teach.predictions.prediction import Prediction, Reveal
from gpulab_course.teach.quizzes import Quiz

__all__ = ["Prediction", "Quiz", "Reveal", "Verdict"]
