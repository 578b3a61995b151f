"""The context tools for agents that we did not write, over the Model Context Protocol."""
