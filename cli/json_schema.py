"""JSON Schema of the documents that the command prints: what programs that read them can rely on.

The schemas are of draft 2020-12. A new version may add properties; one that goes, or changes its type, is a new version
of the schema, and stands in the changelog.
"""

from __future__ import annotations

from collections.abc import Mapping

from rematc.passes.planning.constraints import Form

Schema = Mapping[str, object]

DRAFT = "https://json-schema.org/draft/2020-12/schema"
#: It changes where a property goes, or has another type.
VERSION = 1

TEXT: Schema = {"type": "string"}
FLAG: Schema = {"type": "boolean"}
COUNT: Schema = {"type": "integer", "minimum": 0}
WHOLE: Schema = {"type": "integer"}
#: What is not finite, which JSON has no number for, is a text.
NUMBER: Schema = {"anyOf": [{"type": "number"}, {"enum": ["nan", "inf", "-inf"]}]}
COUNTS: Schema = {"type": "array", "items": COUNT}
TEXTS: Schema = {"type": "array", "items": TEXT}


def _object(properties: Mapping[str, Schema], optional: Mapping[str, Schema] | None = None) -> Schema:
    """An object that has these properties, and may have the optional ones."""
    return {"type": "object", "properties": {**properties, **(optional or {})}, "required": list(properties)}


def _list(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def _by_name(values: Schema) -> Schema:
    """An object with any names."""
    return {"type": "object", "additionalProperties": values}


def _or_null(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


def _pair(items: Schema) -> Schema:
    """Of both sides of a comparison."""
    return {"type": "array", "items": items, "minItems": 2, "maxItems": 2}


VERSIONS = _object(dict.fromkeys(("rematc", "jax", "jaxlib", "numpy"), TEXT))
#: What was asked for. StableHLO modules have no arguments that one differentiates by.
FACTS: Mapping[str, Schema] = {"model": TEXT, "entry": TEXT, "argnums": _list(WHOLE), "versions": VERSIONS}

WORK = _object({"equations": COUNT, "flops": COUNT})
RESIDUAL = _object({"type": TEXT, "bytes": COUNT, "provenance": TEXT, "name": _or_null(TEXT), "crosses": FLAG})
DERIVATIVE = _object(
    {
        "function": TEXT,
        "policy": TEXT,
        "is_planned": FLAG,
        "saved_bytes": _or_null(COUNT),
        "host_bytes": _or_null(COUNT),
        "crossing_bytes": _or_null(COUNT),
        "residuals": _or_null(_list(RESIDUAL)),
        "arguments": _or_null(_list(RESIDUAL)),
        "recomputed": _or_null(_by_name(WORK)),
        "recomputed_values": _or_null(
            _list(_object({"op": TEXT, "type": TEXT, "place": TEXT, "count": COUNT, "flops": COUNT}))
        ),
        "repeated": _or_null(
            _list(_object({"op": TEXT, "type": TEXT, "place": TEXT, "segments": COUNT, "flops": COUNT}))
        ),
        "forward": _or_null(WORK),
        "recompute": _or_null(WORK),
        "backward": _or_null(WORK),
        "effects": _object({"all": COUNT, "in_regions": COUNT}),
        "uncounted_calls": _by_name(COUNT),
    }
)
DECISION = _object(
    {"is_kept": FLAG, "what": TEXT, "type": TEXT, "size": COUNT, "count": COUNT, "flops": COUNT, "place": TEXT}
)
FIGURES = _object(
    {"temp_bytes": COUNT, "flops": _or_null(NUMBER), "compile_seconds": NUMBER, "predicted_bytes": _or_null(COUNT)}
)
COMPARED = _object(
    {
        **dict.fromkeys(("planned", "recomputed", "looped", "barriers", "merged", "rewritten", "unseen"), COUNT),
        **dict.fromkeys(("duplicated", "unknown_loops"), COUNT),
        "found": TEXT,
        "where": _list(_object({"product": TEXT, "source": _or_null(TEXT), "merged": COUNT, "planned": COUNT})),
        "unread": TEXT,
    }
)
SAVING = _object(
    {
        "verdict": {"enum": ["saves memory", "saves little", "saves nothing", "costs memory"]},
        "message": TEXT,
        "way_out": TEXT,
        "temp_bytes": COUNT,
        "without_bytes": COUNT,
        "ratio": _or_null(NUMBER),
        "given_up_bytes": _or_null(WHOLE),
    }
)
CHECK = _object(
    {
        "verdict": {"enum": ["kept", "no product recomputed", "undone", "cannot tell"]},
        "message": TEXT,
        "way_out": TEXT,
        "barriers": COUNT,
        "temp_bytes": COUNT,
        "predicted_bytes": _or_null(COUNT),
        "comparison": COMPARED,
        "saving": _or_null(SAVING),
    }
)
CONSTRAINTS = _object(
    {
        **dict.fromkeys(("keep", "never_repeat"), TEXTS),
        **dict.fromkeys(("sums", "fuses_shared"), FLAG),
        "form": {"enum": list(Form)},
    }
)
KERNELS = _object({"kernels": COUNT, "flops": COUNT})
HELD = _object(
    {
        **dict.fromkeys(("what", "type", "where", "how"), TEXT),
        **dict.fromkeys(("size", "times", "steps", "flops"), COUNT),
    }
)
BUDGET = _object(
    {
        **dict.fromkeys(("budget", "planned", "predicted", "flops", "stages", "loops", "compilations"), COUNT),
        "measured": _or_null(COUNT),
        "extra_flops": WHOLE,
        **dict.fromkeys(("seconds", "extra_seconds", "least_extra_seconds", "gap"), NUMBER),
        "device": TEXT,
        "constraints": CONSTRAINTS,
        "kept": _list(HELD),
        "computed_again": _list(HELD),
        "work": _object(
            {**dict.fromkeys(("forward", "again", "backward", "total"), KERNELS), "products": COUNT, "looped": COUNT}
        ),
    }
)
SLICED = _object(
    {
        "value": TEXT,
        "op": TEXT,
        "where": _or_null(TEXT),
        **dict.fromkeys(("dimension", "count", "each", "stages"), COUNT),
        "again": FLAG,
    }
)
RUN = _object(
    {
        "loss": NUMBER,
        "gradient_norm": NUMBER,
        "gradient_norms": _by_name(NUMBER),
        "median_seconds": NUMBER,
        "runs": COUNT,
    }
)
PARTS: Mapping[str, Schema] = dict.fromkeys(("forward", "recompute", "backward", "other"), NUMBER)
PROFILE = _object(
    {
        "runs": COUNT,
        "seconds": NUMBER,
        "busy_seconds": NUMBER,
        "parts": _object(PARTS),
        "lines": _list(_object({"source": _or_null(TEXT), "function": TEXT, **PARTS})),
        "kernels": _list(
            _object(
                {
                    **dict.fromkeys(("name", "opcode", "part"), TEXT),
                    "seconds": NUMBER,
                    "count": NUMBER,
                    "value": _or_null(TEXT),
                    "source": _or_null(TEXT),
                }
            )
        ),
        "files": TEXTS,
    }
)
POINT = _object(
    {
        "name": TEXT,
        "predicted": COUNT,
        "measured": _or_null(COUNT),
        "extra_seconds": NUMBER,
        "extra_flops": WHOLE,
        "is_dominated": FLAG,
        "plan": _or_null(COUNT),
        "slices": COUNT,
    }
)
STAGES = _list(_object({"begin": COUNT, "again": COUNTS}))
LOOP = _object(
    {
        "path": COUNTS,
        "forward": COUNT,
        "backward": COUNT,
        "length": COUNT,
        "where": TEXT,
        "products": COUNT,
        "stacks": _list(_object({"op": TEXT, "names": TEXTS, "type": TEXT, "bytes": COUNT, "where": TEXT})),
    },
    {
        "dropped": COUNTS,
        "states": FLAG,
        "chunks": COUNT,
        "stages": STAGES,
        "regions": COUNTS,
        "region": COUNT,
        "branch": FLAG,
    },
)
#: What is nothing, or empty, is left out.
KERNEL = _object(
    {"op": TEXT, "digest": TEXT},
    {
        **dict.fromkeys(("names", "fused"), TEXTS),
        **dict.fromkeys(("ns", "flops", "workspace", "inside"), COUNT),
        "where": TEXT,
        "fixed": FLAG,
        "reads": COUNTS,
        "writes": _list(_object({"type": TEXT}, {"bytes": COUNT, "result": FLAG, "origin": TEXT, "replaces": COUNT})),
    },
)

SCHEMAS: Mapping[str, Schema] = {
    "report": _object(
        {
            **FACTS,
            "policy": TEXT,
            "target": TEXT,
            "derivatives": _list(DERIVATIVE),
            "decisions": _list(DECISION),
            "xla": _or_null(FIGURES),
            "xla_without_policy": _or_null(FIGURES),
            "check": _or_null(CHECK),
            "imported_through_jax": _list(_object({"name": TEXT, "count": COUNT, "place": _or_null(TEXT)})),
            "budget": _or_null(BUDGET),
            "slices": _or_null(_list(SLICED)),
            "run": _or_null(RUN),
            "profile": _or_null(PROFILE),
        }
    ),
    "comparison": _object(
        {
            **FACTS,
            "target": TEXT,
            "runs": COUNT,
            "policies": _list(
                _object(
                    {
                        "policy": TEXT,
                        **{name: _or_null(COUNT) for name in ("saved_bytes", "temp_bytes", "predicted_bytes")},
                        **{name: _or_null(NUMBER) for name in ("flops", "compile_seconds", "median_seconds")},
                        "check": _or_null(CHECK),
                        "error": _or_null(TEXT),
                    }
                )
            ),
        }
    ),
    "pareto": _object(
        {**FACTS, "target": TEXT, "device": TEXT, "seconds": NUMBER, "flops": COUNT, "points": _list(POINT)}
    ),
    "diff": _object(
        {
            "names": _pair(TEXT),
            "figures": _object(
                {
                    **{name: _pair(_or_null(TEXT)) for name in ("policy", "target", "jax", "verdict")},
                    **{
                        name: _pair(_or_null(NUMBER))
                        for name in (
                            *("temp_bytes", "predicted_bytes", "kept_bytes", "flops"),
                            *("recomputed_flops", "products", "recomputed_products"),
                        )
                    },
                }
            ),
            "changed": _list(
                _object(
                    {"is_kept": FLAG, "what": TEXT, "type": TEXT, "size": COUNT, "place": TEXT, "counts": _pair(COUNT)}
                )
            ),
        }
    ),
    "plan": _object(
        {
            "format": {"const": "rematc plan 1"},
            "budget": COUNT,
            "device": TEXT,
            "bound_ns": COUNT,
            "program": TEXT,
            "predicted": _object(
                {
                    **dict.fromkeys(("peak", "peak_without", "ns", "ns_without", "flops_without"), COUNT),
                    "extra_flops": WHOLE,
                },
                {"products_without": COUNT},
            ),
            "stages": STAGES,
            "kernels": _list(KERNEL),
        },
        {
            "loops": _list(LOOP),
            "constraints": CONSTRAINTS,
            "slices": COUNT,
        },
    ),
}


def schema_of(document: str) -> dict[str, object]:
    """The schema of a document, by its name among `SCHEMAS`."""
    title = f"rematc {document}"
    return {"$schema": DRAFT, "$id": f"urn:rematc:{document}:{VERSION}", "title": title, **SCHEMAS[document]}
