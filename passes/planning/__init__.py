"""The plan: what of a differentiated program is kept and what is computed again, chosen under a policy or a budget."""
