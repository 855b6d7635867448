"""What `--version` says beside the command's own: what it runs on."""

from __future__ import annotations

import importlib.metadata
import platform
from collections import Counter
from collections.abc import Iterator

import jax


def version_lines() -> Iterator[str]:
    """Versions of what compiles, and the devices that are here."""
    installed = [f"{name} {importlib.metadata.version(name)}" for name in ("jax", "jaxlib", "numpy")]
    yield ", ".join([*installed, f"Python {platform.python_version()}"])
    try:
        kinds = Counter((device.platform, device.device_kind) for device in jax.devices())
    except RuntimeError as error:
        yield f"devices: none, {error}"
        return
    names = [f"{kind} ({where})" if kind != where else where for where, kind in kinds]
    counts = [f"{count} x {name}" if count > 1 else name for name, count in zip(names, kinds.values(), strict=True)]
    yield f"devices: {', '.join(counts)}"
