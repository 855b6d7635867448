"""Programs on eight devices, in the ways that people spread training: what `benchmarks/spread.py` measures."""

from benchmarks.parallel.manual import MANUAL
from benchmarks.parallel.placed import PLACED

#: By name.
PROGRAMS = {program.name: program for program in (*MANUAL, *PLACED)}
