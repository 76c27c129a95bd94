"""What runs leave behind: writing, sealing, finding and reading records."""
