"""Products planned, recomputed and found by the check, on the models of benchmarks/memory.py.

    python benchmarks/check.py [--only chain,unet] [--policies nothing,dots,auto] [--strategies optimization_barrier]

One line for each model, policy and strategy of barriers. Fails where a check does not say "kept" or "nothing
recomputed", or counts another number of products in the module that XLA runs than in the one that it was given.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import jax
import jaxlib.version

import rematc

sys.path.insert(0, str(Path(__file__).parents[1]))  # run as a script, only this folder is on the path

from benchmarks.architectures import LARGE, MODELS, REMATC, unwrapped
from rematc.compiler.reports.check import KEPT, NOTHING, Check
from rematc.lowering.pipeline import default_pipeline


def check(name: str, policy: str, strategy: str) -> Check:
    """The check of a model's training step under a policy on the whole."""
    model = MODELS[name]
    step = rematc.value_and_grad(model.build(REMATC, unwrapped, unwrapped), policy=policy)
    return rematc.lower(step, *model.arguments(), passes=default_pipeline(strategy)).compile().check()


def is_exact(found: Check) -> bool:
    """Whether what was planned was kept, and all of it found."""
    compared = found.comparison
    is_same = compared.found == str(compared.planned) and not (compared.rewritten or compared.duplicated)
    return found.verdict in (KEPT, NOTHING) and is_same and not compared.unknown_loops


def main() -> int:
    """Check and print; how many checks are not exact."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    small = ",".join([name for name in MODELS if name not in LARGE])
    parser.add_argument("--only", default=small, help="models, separated by commas")
    parser.add_argument("--policies", default="nothing,dots,auto", help="policies, separated by commas")
    parser.add_argument("--strategies", default="optimization_barrier,call,conditional", help="strategies of barriers")
    options = parser.parse_args()
    print(f"jax {jax.__version__}, jaxlib {jaxlib.version.__version__} on {jax.default_backend()}")
    failures = 0
    for name in options.only.split(","):
        for policy in options.policies.split(","):
            for strategy in options.strategies.split(","):
                found = check(name, policy, strategy)
                compared = found.comparison
                failures += not is_exact(found)
                print(
                    f"{'' if is_exact(found) else '! '}{name}, {policy}, {strategy}: {found.verdict}; "
                    f"{compared.planned} planned, {compared.recomputed} of them recomputed ({compared.looped} in "
                    f"loops), {compared.found} found",
                    flush=True,
                )
    print(f"{failures} not exact")
    return failures


if __name__ == "__main__":
    sys.exit(bool(main()))
