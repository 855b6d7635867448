"""A policy of one's own: save a product only where it is smaller than what it was computed from."""


def shrinking(op, operand_types, name):
    """Whether the result of `op` may be saved."""
    results = op.infer(operand_types)
    return op.is_product and sum(one.bytes for one in results) < sum(one.bytes for one in operand_types)
