"""Starts the main program whenever a line asks for it, everything imported already.

Each line on stdin holds the flags of a run as JSON; the answer is the number of its process, which
is a fork of this one and told apart from a program started anew by the time it takes alone. Once it
has ended its status follows.
"""

import json
import os
import sys

# What a run imports, some of it late.
import matplotlib.figure  # noqa: F401
import sklearn.datasets
import sklearn.model_selection  # noqa: F401

from vit_jax import launch, main, train  # noqa: F401

if __name__ == "__main__":
  for line in sys.stdin:
    child = os.fork()
    if not child:
      os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
      sys.argv = ["vit_jax", *json.loads(line)]
      main.run()
    print(child, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
