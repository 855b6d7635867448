"""FileCheck directives (`// CHECK: ...`) matched in process, without a file or a program."""

from __future__ import annotations

import contextlib
import io

from filecheck.finput import FInput
from filecheck.matcher import Matcher
from filecheck.options import Options
from filecheck.parser import Parser, pattern_for_opts


def check(directives: str, output: str, name: str) -> None:
    """Fail with FileCheck's own message unless `output` matches the CHECK lines of `directives`."""
    options = Options(match_filename=name)
    parser = Parser(options, io.StringIO(directives), *pattern_for_opts(options))
    message = io.StringIO()
    with contextlib.redirect_stderr(message):
        failed = Matcher(options, FInput("output", output), parser).run()
    assert not failed, f"{message.getvalue()}\n{output}"
