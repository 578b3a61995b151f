"""What the agents on this machine did lately, what it cost, and what it would have cost with refold."""
