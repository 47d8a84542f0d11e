"""How far model-inversion reconstructions really show the private person: judges beside evaluation classifiers.

After arXiv 2505.03519, "Revisiting Model Inversion Evaluation: From Misleading Standards to Reliable Privacy
Assessment".
"""
