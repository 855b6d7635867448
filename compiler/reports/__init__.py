"""What rematc shows: residuals, reports, whether XLA kept what was planned."""
