"""Whether a policy saves memory: temporary memory with it beside that of the same program without one.

That recomputation is kept is one question (`rematc.compiler.reports.check`), what it saves another: XLA may run in an
order that holds everything at once all the same, or the program may need its memory elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass

from rematc.ir.units import format_bytes, format_ratio

#: The verdicts.
SAVES, LITTLE, SAVES_NOTHING, COSTS = "saves memory", "saves little", "saves nothing", "costs memory"


@dataclass(frozen=True, slots=True)
class Saving:
    """What a policy saves, as measured: XLA's figures for two programs.

    Attributes:
        temp_bytes: temporary memory under the policy.
        without_bytes: temporary memory without it.
        given_up_bytes: residuals that are not saved under the policy, and are without it; None where that is not known.
        way_out: what takes less; "" where nothing needs to be done.
        what: what saves it: a policy, or a plan.
    """

    temp_bytes: int
    without_bytes: int
    given_up_bytes: int | None = None
    way_out: str = ""
    what: str = "policy"

    @property
    def verdict(self) -> str:
        """One of `SAVES`, `LITTLE`, `SAVES_NOTHING` and `COSTS`.

        Little is less than half of the residuals that are given up, as far as they were in that memory.
        """
        saved = self.without_bytes - self.temp_bytes
        if saved < 0:
            return COSTS
        if saved == 0:
            return SAVES_NOTHING
        return LITTLE if 2 * saved < min(self.given_up_bytes or 0, self.without_bytes) else SAVES

    @property
    def is_in_vain(self) -> bool:
        """Whether the program takes as much memory as without the policy, or more."""
        return self.temp_bytes >= self.without_bytes

    @property
    def message(self) -> str:
        """The verdict as a sentence, with the figures."""
        ratio = format_ratio(self.temp_bytes, self.without_bytes)
        amounts = format_bytes(self.temp_bytes), format_bytes(self.without_bytes)
        if amounts[0] == amounts[1] and self.temp_bytes != self.without_bytes:
            amounts = f"{self.temp_bytes} B", f"{self.without_bytes} B"
        beside = f"{amounts[0]} instead of {amounts[1]} without a {self.what}"
        little = f"; residuals fell by {format_bytes(self.given_up_bytes or 0)}" if self.verdict == LITTLE else ""
        return f"the {self.what} {self.verdict}: {beside}{f' ({ratio})' if self.without_bytes else ''}{little}"

    def as_dict(self) -> dict[str, object]:
        """The same as JSON-able data."""
        return {
            "verdict": self.verdict,
            "message": self.message,
            "way_out": self.way_out,
            "temp_bytes": self.temp_bytes,
            "without_bytes": self.without_bytes,
            "ratio": self.temp_bytes / self.without_bytes if self.without_bytes else None,
            "given_up_bytes": self.given_up_bytes,
        }
