"""`RunConfig`, settings, and flags made from its fields."""
