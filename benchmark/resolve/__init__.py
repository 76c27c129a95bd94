"""From a configuration to a run that can be carried out, and the code and plugins that it is made of."""
