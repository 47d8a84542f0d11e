"""CPRT: vision-language models as privacy judges, and honest measures of such judges.

The domain package. It imports nothing of this repository outside itself, and nothing heavy:
``import cprt`` stays free of torch.
"""

__version__ = "0.1.0"
