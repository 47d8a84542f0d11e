"""Do reconstructions of a model-inversion attack look like the private class they claim? (arXiv 2505.03519)"""
