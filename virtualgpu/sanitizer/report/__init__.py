"""Reports of findings as readable hazards: elements, locations, sentences, remedies."""
