"""Runs a command as one to whom file permissions apply: python -m tests.faults.unprivileged ...

Root may write anywhere. The command loses that right; it never had it under any other user.
"""

import ctypes
import os
import sys

_PR_CAPBSET_DROP, _CAP_DAC_OVERRIDE = 24, 1

if __name__ == "__main__":
  ctypes.CDLL(None).prctl(_PR_CAPBSET_DROP, _CAP_DAC_OVERRIDE, 0, 0, 0)
  os.execv(sys.argv[1], sys.argv[1:])
