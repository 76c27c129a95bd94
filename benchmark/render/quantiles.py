"""How many clients are shown each, and what is shown of more."""

MANY = 200  # clients; of more, figures and tables show quantiles
QUANTILES = {"least": 0, "5 %": 5, "25 %": 25, "median": 50, "75 %": 75, "95 %": 95, "most": 100}
