"""What libraries tell their developers, and no user can do anything about, stays unsaid once this module is imported.

``TRANSFORMERS_VERBOSITY=warning`` brings back what transformers says.
"""

from __future__ import annotations

import logging
import os
import warnings

os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")  # read when it is imported
logging.getLogger("bitsandbytes").setLevel(logging.ERROR)  # kernels for processors that it would like to download
# Names that will change in their next versions; constraints.txt holds these.
warnings.filterwarnings("ignore", category=FutureWarning, module=r"(accelerate|peft|torch|transformers|trl)(\.|$)")
