"""What people read: tables, figures, the page, comparisons."""
