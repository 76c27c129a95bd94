"""What runs have left behind: finding and reading records, and where they come from."""
