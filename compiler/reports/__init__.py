"""What rematc shows: residuals, reports, forward and backward side by side."""
