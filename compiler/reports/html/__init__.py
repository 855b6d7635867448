"""A report as one HTML page that needs nothing else: pictures, the user's source, tables, the program's text."""
