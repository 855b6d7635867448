"""What holds for all tests."""

from __future__ import annotations

import signal

# A shell that starts the tests in the background lets them ignore Ctrl-C, and every process they start: the tests of
# an interrupted command would wait for ever.
signal.signal(signal.SIGINT, signal.default_int_handler)
