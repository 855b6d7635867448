"""What holds for all tests."""

from __future__ import annotations

import os
import signal

# A shell that starts the tests in the background lets them ignore Ctrl-C, and every process they start: the tests of
# an interrupted command would wait for ever.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Most of the time goes to LLVM, which optimizes thousands of programs that run once. What XLA does to a program, and
# the memory it takes, is the same without. Who sets the variable, to nothing too, gets what it says.
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")
