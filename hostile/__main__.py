"""Run the hostile suite."""

import os
import sys

# One thread per process: the runner starts several processes, and a fork copies only one thread.
for _name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[_name] = "1"

from hostile.runner import main  # noqa: E402  (after the number of threads is set)

if __name__ == "__main__":
    sys.exit(main())
