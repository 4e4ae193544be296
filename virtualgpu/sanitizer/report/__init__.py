"""What checks found, as hazards a learner can read: elements, places, sentences, remedies."""
