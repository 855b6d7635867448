"""Frontends, the API, reports: from what users write to what they get."""
