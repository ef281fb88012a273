"""Studies are no package: their tests import them as the studies import one another."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))
